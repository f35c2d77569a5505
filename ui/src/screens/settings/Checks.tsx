import { useQuery } from "@tanstack/react-query";
import { api, unwrap } from "@/api/client";
import { Button } from "@/parts/Button";
import { Failure } from "@/parts/Failure";
import { SafeText } from "@/parts/SafeText";
import { Skeleton } from "@/parts/Skeleton";
import { State } from "@/parts/State";

const doctorQuery = { queryKey: ["doctor"], queryFn: () => unwrap(api.GET("/api/v1/doctor")), refetchOnMount: "always" as const };

/** What `segue doctor` finds: installation, configuration, store and servers. */
export function Checks() {
  const doctor = useQuery(doctorQuery);
  return (
    <section className="card" aria-labelledby="doctor-h">
      <div className="row">
        <h2 id="doctor-h">Doctor</h2>
        {doctor.data && <State state={doctor.data.ok ? "success" : "failed"}>{doctor.data.ok ? "Everything works" : "Something is wrong"}</State>}
        <span className="grow" />
        <Button icon="i-again" busy={doctor.isFetching} onClick={() => void doctor.refetch()}>Check again</Button>
      </div>
      {doctor.isPending && <Skeleton rows={5} label="Checking" />}
      {doctor.isError && <Failure error={doctor.error} retry={() => void doctor.refetch()} />}
      {doctor.data && (
        <ul className="checks">
          {doctor.data.findings.map((finding, i) => (
            <li key={i}>
              <State state={finding.ok ? "success" : "failed"}>{finding.ok ? "Works" : "Failed"}</State>
              <b className="ell"><SafeText text={finding.what} most={80} /></b>
              <div>
                <div className="anywhere"><SafeText text={finding.message} /></div>
                {finding.help && <div className="anywhere"><b>What helps: </b><SafeText text={finding.help} /></div>}
              </div>
            </li>
          ))}
        </ul>
      )}
    </section>
  );
}
