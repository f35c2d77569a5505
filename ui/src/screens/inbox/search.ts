import { text, type Search } from "@/lib/search";

export interface InboxSearch {
  /** `run_id step` of the open question. */
  question?: string;
}

export const inbox = (search: Search): InboxSearch => ({ question: text(search, "question") });
