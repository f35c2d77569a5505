export const plans: Record<string, unknown>;
