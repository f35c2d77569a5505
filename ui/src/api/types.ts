// The names under which the page uses the server's types.
import type { components } from "./schema";

type Schemas = components["schemas"];
export type AttemptView = Schemas["AttemptView"];
export type CallFrame = Schemas["CallFrame"];
export type CallResult = Schemas["ToolCallResult"];
export type ComparedStep = Schemas["StepComparison"];
export type Comparison = Schemas["RunComparison"];
export type CompositionDetail = Schemas["CompositionDetails"];
export type CompositionList = Schemas["CompositionList"];
export type CompositionSummary = Schemas["CompositionSummary"];
export type DecisionView = Schemas["DecisionView"];
export type DiagnosticView = Schemas["DiagnosticView"];
export type Difference = Schemas["ValueDifference"];
export type DoctorFinding = Schemas["Check"];
export type ErrorView = Schemas["ErrorView"];
export type Impact = Schemas["Impact"];
export type MissReport = Schemas["MissReport"];
export type PlanStepView = Schemas["PlanStepView"];
export type PlanView = Schemas["PlanView"];
export type Problem = Schemas["Problem"];
export type Question = Schemas["WaitingQuestion"];
export type RollbackEvent = Schemas["RollbackEventView"];
export type RollbackView = Schemas["RollbackView"];
export type RunPart = NonNullable<Schemas["RunDetails"]["part"]>;
export type RunList = Schemas["RunList"];
export type RunSource = Schemas["RunSource"];
export type RunStatus = Schemas["RunStatus"];
export type RunSummary = Schemas["RunSummary"];
export type RunView = Schemas["RunDetails"];
export type Sameness = Schemas["Sameness"];
export type ServerView = Schemas["ServerView"];
export type Session = Schemas["Session"];
export type Setting = Schemas["Setting"];
export type SourceSpan = Omit<Schemas["StepPlaceView"], "step">;
export type StepDetail = Schemas["StepDetails"];
export type StepPage = Schemas["StepList"];
export type StepStatus = Schemas["StepStatus"];
export type StepView = Schemas["StepView"];
export type TemplateView = Schemas["TemplateView"];
export type TestReport = Schemas["TestReport"];
export type TestsReport = Schemas["TestsReport"];
export type Tool = Schemas["Tool"];
export type ValuePage = Schemas["ValuePage"];
export type WaitView = Schemas["WaitView"];

/** How the server writes a value that it cut, in place of the value itself. */
export interface CutValue {
  $cut: { kind: "string" | "array" | "object"; bytes: number; length: number; preview: unknown };
}
