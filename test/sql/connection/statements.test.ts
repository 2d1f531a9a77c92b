import { Context, Effect, Layer, Option, Redacted } from "effect"
import * as DatabaseLive from "../../../src/sql/connection/Database.ts"
import { parseDatabaseUrl } from "../../../src/sql/connection/DatabaseTarget.ts"
import { makeLookUp } from "../../../src/sql/connection/statements.ts"
import { databaseSettings, freshDatabase } from "../../support/database/freshDatabase.ts"
import { assert, it } from "../../support/it.ts"

interface Wanted {
  readonly name: string
}

it.live.each<readonly [string, { readonly nameOf?: (wanted: Wanted) => string }]>([
  ["that each read a row of their own", {}],
  ["that read a row once for all requests of its name", { nameOf: ({ name }) => name }]
])("concurrent look-ups %s each get the row that they would get alone", function* ([, naming]) {
  const target = parseDatabaseUrl(Redacted.make(yield* freshDatabase))
  const context = yield* Layer.build(DatabaseLive.layer(target, databaseSettings))
  const { reads } = Context.get(context, DatabaseLive.Database)
  const lookUp = makeLookUp<Wanted, { readonly found: string }, string>(reads, {
    operation: "tests.look_up",
    by: { name: "text" },
    select: ({ name }) =>
      reads.sql`SELECT 'row of ' || known AS found FROM unnest(ARRAY['a', 'b', 'c']) AS known WHERE known = ${name}`,
    read: ({ found }, { name }) => `${found} for ${name}`,
    ...naming
  })
  const asked = ["c", "a", "none", "c", "b", "a"]
  const answers = yield* Effect.forEach(asked, (name) => lookUp({ name }), { concurrency: "unbounded" })
  assert.deepStrictEqual(
    answers.map(Option.getOrUndefined),
    asked.map((name) => (name === "none" ? undefined : `row of ${name} for ${name}`))
  )
})
