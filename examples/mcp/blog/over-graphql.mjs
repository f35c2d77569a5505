// Over GraphQL: requests a plan for an author and a blog by that author, reads it, executes it, and follows the run.
//   npm install graphql graphql-request graphql-sse
//   segue --config segue.yaml serve            (in this folder, with SEGUE_TOKEN set)
//   SEGUE_TOKEN=... node over-graphql.mjs
import { GraphQLClient, gql } from "graphql-request";
import { createClient } from "graphql-sse";

const url = `${process.env.SEGUE_URL ?? "http://127.0.0.1:7433"}/graphql`;
const headers = { Authorization: `Bearer ${process.env.SEGUE_TOKEN}` };
const client = new GraphQLClient(url, { headers });
const events = createClient({ url, headers, retryAttempts: 0 });

const QUERY =
  "Create author Alice with email alice@test.com, then create blog by Alice titled Hello about world";

const say = (title, value) => console.log(`== ${title}\n${JSON.stringify(value, null, 2)}`);

const { createPlanWithRequestId: made } = await client.request(
  gql`
    mutation ($query: String!) {
      createPlanWithRequestId(query: $query) {
        requestId
        planId
      }
    }
  `,
  { query: QUERY },
);
say("planned, and nothing called", made);
const { requestId } = made;

const LOOK = gql`
  query ($requestId: ID!) {
    plan(requestId: $requestId) {
      state
      executionOrder
      tools {
        toolName
        parameters
        dependsOn
      }
      executionResults {
        results
        errors {
          step
          code
          message
        }
      }
      versions {
        planId
        version
        state
      }
    }
  }
`;
say("the plan of the request", (await client.request(LOOK, { requestId })).plan);

const EXECUTE = gql`
  mutation ($requestId: ID!) {
    executePlan(requestId: $requestId, respondAsync: true) {
      state
      runId
    }
  }
`;
const { executePlan: begun } = await client.request(EXECUTE, { requestId });
say("begun", begun);

console.log("== as it happens");
const following = events.iterate({
  query: `subscription ($runId: ID!) {
    runEvents(runId: $runId) { seq event step run { status output } }
  }`,
  variables: { runId: begun.runId },
});
for await (const { data, errors } of following) {
  if (errors) throw new Error(JSON.stringify(errors));
  const { seq, event, step, run } = data.runEvents;
  console.log(seq, event, step ?? run.status);
}
say("what came of it", (await client.request(LOOK, { requestId })).plan);

try {
  await client.request(EXECUTE, { requestId });
} catch (error) {
  const [{ message, extensions }] = error.response.errors;
  say("once is enough", { code: extensions.code, message, help: extensions.help });
}

const AGAIN = gql`
  mutation ($query: String!, $requestId: ID!) {
    createPlanWithRequestId(query: $query, requestId: $requestId, fresh: true) {
      version
      composition(name: "author-and-blog")
    }
  }
`;
const { createPlanWithRequestId: second } = await client.request(AGAIN, { query: QUERY, requestId });
console.log(`== version ${second.version}, as a composition of its own\n${second.composition}`);
say("the versions", (await client.request(LOOK, { requestId })).plan.versions);
console.log("== done");
