import { Link } from "@tanstack/react-router";
import { Empty } from "@/parts/Empty";
import { Screen } from "./Screen";

export function NotFound() {
  return (
    <Screen title="Not found">
      <Empty title="No screen has this address">
        <p><Link to="/">Go to Runs</Link></p>
      </Empty>
    </Screen>
  );
}
