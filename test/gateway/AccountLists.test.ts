import { randomUUID } from "node:crypto"
import { assert, layerLive } from "../support/it.ts"
import { TestService } from "../support/http/TestService.ts"
import { ask, openSocket } from "./socket.ts"

type Row = Readonly<Record<string, string | null>>

const rows = 1500

layerLive(TestService.layer)("the socket's lists of one account", (it) => {
  it.effect.each([
    { list: "api-keys", id: "hash", unknown: "0".repeat(64) },
    { list: "workspaces", id: "workspace_id", unknown: randomUUID() }
  ])("lists $list 1,000 at a time, each once, in order of creation", function* ({ id, list, unknown }) {
    const { newTenant, sql } = yield* TestService
    const [tenant, stranger] = [yield* newTenant, yield* newTenant]
    yield* sql`
      INSERT INTO api_keys SELECT sha256(gen_random_uuid()::text::bytea), ${tenant.account_id}, 'n', 'ordinary',
        now() + n / 10 * interval '1 second', now() FROM generate_series(1, ${rows}) AS n`
    yield* sql`
      INSERT INTO workspaces SELECT gen_random_uuid(), ${tenant.account_id}, 'n', false,
        now() + n / 10 * interval '1 second' FROM generate_series(1, ${rows}) AS n`
    const path = yield* openSocket
    const at = (account_id: string, after?: string | null) =>
      ask(path, "GET", `/v1/accounts/${account_id}/${list}${after === undefined ? "" : `?after=${after}`}`)
    const read = function* (after?: string | null) {
      return (JSON.parse((yield* at(tenant.account_id, after)).text) as { data: ReadonlyArray<Row> }).data
    }
    const first = yield* read()
    assert.strictEqual(first.length, 1000)
    const rest = yield* read(first.at(-1)?.[id])
    const all = [...first, ...rest]
    assert.isAtLeast(all.length, rows + 1)
    assert.strictEqual(new Set(all.map((row) => row[id])).size, all.length)
    const times = all.map((row) => row["created_at"] ?? "")
    assert.deepStrictEqual(times, times.toSorted())
    assert.deepStrictEqual(yield* read(all.at(-1)?.[id]), [])
    assert.strictEqual((yield* at(tenant.account_id, unknown)).status, 404)
    assert.strictEqual((yield* at(stranger.account_id, first.at(-1)?.[id])).status, 404, "another account's")
    assert.strictEqual((yield* at(tenant.account_id, "1")).status, 400)
    assert.strictEqual((yield* at(randomUUID())).status, 404)
  })
})
