import { assert, it } from "@effect/vitest"
import { Effect, Option } from "effect"
import { CurrentActor } from "../../../src/domain/CurrentCaller.ts"
import { CredentialId, LinkId } from "../../../src/domain/Identifiers.ts"
import { eventsIn } from "../../support/database/auditEntries.ts"
import { account_id, openLossyStore, uuid, workspace_id } from "../../support/database/lossyStore.ts"
import { plainCredential, plainSealedKey } from "../../support/database/plainCredential.ts"

const link_id = LinkId.make(uuid(9))

it.live.each(["connect", "manage"])(
  "a create by a link to %s is made once if the answer to its commit is lost",
  (purpose) =>
    Effect.gen(function* () {
      const { admin, proxy, repository } = yield* openLossyStore
      yield* admin`
      INSERT INTO links (id, account_id, workspace_id, purpose, hash, created_at, expires_at)
      VALUES (${link_id}, ${account_id}, ${workspace_id}, ${purpose}, decode(repeat('07', 32), 'hex'), now(), now() + interval '1 hour')`
      const insert = (n: number) =>
        repository
          .insert(account_id, plainCredential(workspace_id, CredentialId.make(uuid(n))), plainSealedKey(1))
          .pipe(Effect.provideService(CurrentActor, { kind: "link", link_id }))
      proxy.loseAnswer("COMMIT")
      assert.isTrue(Option.isSome(yield* insert(3)))
      assert.strictEqual(proxy.lost(), 1)
      const events = yield* eventsIn(admin)
      assert.deepStrictEqual(
        events.map(({ action, actor }) => ({ action, actor })),
        [{ action: "credential.create", actor: { kind: "link", link_id } }]
      )
      const [row] = yield* admin<{ ended: string | null }>`SELECT ended FROM links WHERE id = ${link_id}`
      assert.strictEqual(row?.ended, purpose === "connect" ? "used" : null)
    })
)
