// Asks a server for its schema as tools do, and holds it against the file that is committed.
import { readFileSync } from "node:fs";
import {
  buildClientSchema,
  buildSchema,
  getIntrospectionQuery,
  lexicographicSortSchema,
  printSchema,
  validateSchema,
} from "graphql";
import { GraphQLClient } from "graphql-request";

const headers = { Authorization: `Bearer ${process.env.SEGUE_TOKEN}` };
const client = new GraphQLClient(`${process.env.SEGUE_URL}/graphql`, { headers });
const asked = buildClientSchema(await client.request(getIntrospectionQuery()));
const committed = buildSchema(readFileSync(process.env.SCHEMA, "utf8"));
const wrong = [asked, committed].flatMap(validateSchema);
if (wrong.length > 0) throw wrong[0];
const text = (schema) => printSchema(lexicographicSortSchema(schema));
console.log(text(asked) === text(committed) ? "the same" : text(asked));
