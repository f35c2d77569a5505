import { useQuery } from "@tanstack/react-query";
import { sessionQuery } from "@/api/queries";
import type { Session } from "@/api/types";

/** The session behind the gate: every screen may rely on it. */
export function useSession(): Session {
  const { data } = useQuery(sessionQuery);
  if (!data) throw new Error("no session");
  return data;
}

/** Why the principal may not do it, or null: for `off` of buttons. */
export function useDenied(right: string): string | null {
  const { data } = useQuery(sessionQuery);
  if (!data) return "not signed in";
  return data.rights.includes(right) || data.rights.includes("admin") ? null : `needs the right “${right}”`;
}
