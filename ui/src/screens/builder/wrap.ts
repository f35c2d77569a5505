import type { Wrapper } from "./kinds";
import type { Container } from "./model";

/** The step that is put around others; without an array or a condition, one that does no harm. */
export const containerOf = (kind: Wrapper, over: string): Container => {
  switch (kind) {
    case "loop":
      return { loop: { over: over || [] } };
    case "parallel":
      return { parallel: {} };
    case "choose":
      return { choose: { when: over || "{{ true }}" } };
    case "repeat":
      return { repeat: { until: over || "{{ true }}", max_iterations: 10 } };
  }
};
