import { memberNames, members } from "../../../src/domain/Credential.ts"
import { Database } from "../../../src/sql/connection/Database.ts"
import { newColumns } from "../../../src/sql/rows/credentialRows.ts"
import { Store } from "../../support/database/stores.ts"
import { assert, layerLive } from "../../support/it.ts"

layerLive(Store.layer)("the table of credentials", (it) => {
  it.effect("has a column for each member of a credential, of its type and nullability", function* () {
    const { sql } = (yield* Database).writes
    const columns = yield* sql<{ name: string; type: string; nullable: boolean }>`
        SELECT attname AS name, atttypid::regtype::text AS type, NOT attnotnull AS nullable FROM pg_attribute
        WHERE attrelid = 'credentials'::regclass AND attnum > 0 AND NOT attisdropped`
    const typeOf = Object.fromEntries(
      columns.map(({ name, type }) => [name, type.replace("timestamp with time zone", "timestamptz")])
    )
    for (const name of memberNames) assert.strictEqual(typeOf[name], members[name].column, name)
    const nullable = memberNames.filter((name) => "default" in members[name] && members[name].default === null)
    assert.sameMembers(
      columns.filter((column) => column.nullable).map(({ name }) => name),
      nullable
    )
    assert.sameMembers(
      columns.map(({ name }) => name),
      [...new Set<string>([...memberNames, ...newColumns]), "revision", "key_version"]
    )
  })
})
