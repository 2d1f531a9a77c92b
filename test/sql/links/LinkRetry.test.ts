import { Cause, Effect, Exit, Option } from "effect"
import { CurrentActor } from "../../../src/domain/CurrentCaller.ts"
import { LinkId } from "../../../src/domain/Identifiers.ts"
import { WorkspaceGone } from "../../../src/port/CredentialRepository.ts"
import { LinkClosed } from "../../../src/port/Links.ts"
import { eventsIn } from "../../support/database/auditEntries.ts"
import { account_id, openLossyStore, uuid, workspace_id } from "../../support/database/lossyStore.ts"
import { plainCredential, plainSealedKey } from "../../support/database/plainCredential.ts"
import { assert, it } from "../../support/it.ts"

const link_id = LinkId.make(uuid(9))

/** A link for a purpose, and creates by it. */
const open = Effect.fnUntraced(function* (purpose: string) {
  const { admin, proxy, repository } = yield* openLossyStore
  yield* admin`
    INSERT INTO links (id, account_id, workspace_id, purpose, hash, created_at, expires_at)
    VALUES (${link_id}, ${account_id}, ${workspace_id}, ${purpose}, decode(repeat('07', 32), 'hex'), now(), now() + interval '1 hour')`
  const insertByLink = (n: number) =>
    repository
      .insert(account_id, plainCredential(workspace_id, uuid(n)), plainSealedKey(1))
      .pipe(Effect.provideService(CurrentActor, { kind: "link", link_id }))
  const ended = Effect.map(
    admin<{ ended: string | null }>`SELECT ended FROM links WHERE id = ${link_id}`,
    ([row]) => row?.ended
  )
  return { admin, ended, insertByLink, proxy }
})

it.live.each(["connect", "manage"])("a create by a link to %s is made once if its answer is lost", function* (purpose) {
  const { admin, ended, insertByLink, proxy } = yield* open(purpose)
  proxy.loseAnswer("COMMIT")
  assert.isTrue(Option.isSome(yield* insertByLink(3)))
  assert.strictEqual(proxy.lost(), 1)
  const events = yield* eventsIn(admin)
  assert.deepStrictEqual(
    events.map(({ action, actor }) => ({ action, actor })),
    [{ action: "credential.create", actor: { kind: "link", link_id } }]
  )
  assert.strictEqual(yield* ended, purpose === "connect" ? "used" : null)
})

it.live("a link that is used makes no other write, and that stores nothing", function* () {
  const { admin, insertByLink } = yield* open("connect")
  assert.isTrue(Option.isSome(yield* insertByLink(3)))
  const exit = yield* Effect.exit(insertByLink(4))
  assert(Exit.isFailure(exit))
  assert.instanceOf(Cause.squash(exit.cause), LinkClosed)
  assert.lengthOf(yield* admin`SELECT 1 FROM credentials`, 1)
  assert.lengthOf(yield* eventsIn(admin), 1)
})

it.live("a link whose write stores nothing can be used still", function* () {
  const { admin, ended, insertByLink } = yield* open("connect")
  yield* admin`UPDATE workspaces SET deleted_at = now()`
  assert.instanceOf(yield* Effect.flip(insertByLink(3)), WorkspaceGone)
  assert.isNull(yield* ended)
  yield* admin`UPDATE workspaces SET deleted_at = NULL`
  assert.isTrue(Option.isSome(yield* insertByLink(3)))
  assert.strictEqual(yield* ended, "used")
})
