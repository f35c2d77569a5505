import type { Key, Schema } from "./schema";
import type { Shape } from "./shape";
import { ArrayBody } from "./ArrayBody";
import { BooleanBody, EnumBody, FixedBody, NumberBody, SeveralBody, StringBody } from "./controls";
import { ChoiceBody } from "./ChoiceBody";
import { ObjectBody } from "./ObjectBody";
import { RawText } from "./RawText";

export interface BodyProps<S extends Shape = Shape> {
  schema: Schema;
  keys: Key[];
  shape: S;
  label: string;
  required: boolean;
  /** How many choices stand around it at the same place. */
  level: number;
  id?: string;
  describedBy?: string;
  /** The whole of the form: it is always there, and has no frame. */
  top?: boolean;
  /** An empty text stays a value: it is a member that somebody added. */
  keepEmpty?: boolean;
}
export type Of<K extends Shape["kind"]> = BodyProps<Extract<Shape, { kind: K }>>;

/** Whether it holds several controls, so that its name is the name of a group. */
export const isBox = (shape: Shape): boolean => ["object", "array", "choice", "several", "boolean", "const", "null"].includes(shape.kind);

/** The control of a shape, without its name. */
export function Body(props: BodyProps) {
  const { shape } = props;
  switch (shape.kind) {
    case "string":
      return <StringBody {...props} shape={shape} />;
    case "number":
      return <NumberBody {...props} shape={shape} />;
    case "boolean":
      return <BooleanBody {...props} shape={shape} />;
    case "enum":
      return <EnumBody {...props} shape={shape} />;
    case "several":
      return <SeveralBody {...props} shape={shape} />;
    case "const":
      return <FixedBody {...props} value={shape.value} />;
    case "null":
      return <FixedBody {...props} value={null} />;
    case "object":
      return <ObjectBody {...props} shape={shape} />;
    case "array":
      return <ArrayBody {...props} shape={shape} />;
    case "choice":
      return <ChoiceBody {...props} shape={shape} />;
    case "raw":
      return <RawText keys={props.keys} label={props.label} id={props.id} describedBy={props.describedBy} />;
  }
}
