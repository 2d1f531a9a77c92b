import { Cause, DateTime, Effect, Exit, Fiber, Option } from "effect"
import { CurrentPrincipal, type LinkPrincipal } from "../../../src/domain/Principal.ts"
import { ApiKeyHash, CredentialId, LinkId } from "../../../src/domain/Identifiers.ts"
import type { Purpose } from "../../../src/domain/Link.ts"
import { WorkspaceGone } from "../../../src/port/CredentialRepository.ts"
import { LinkClosed } from "../../../src/port/Links.ts"
import { eventsIn } from "../../support/database/auditEntries.ts"
import { account_id, openLossyStore, uuid, workspace_id } from "../../support/database/lossyStore.ts"
import { plainCredential, plainSealedKey } from "../../support/database/plainCredential.ts"
import { holdOpen, untilWaiting } from "../../support/database/transactions.ts"
import { assert, describe, it } from "../../support/it.ts"

const link_id = LinkId.make(uuid(9))

/** A link for a purpose, and creates by it. */
const open = Effect.fnUntraced(function* (purpose: Purpose) {
  const { admin, links, proxy, repository, stored } = yield* openLossyStore
  yield* admin`
    INSERT INTO links (id, account_id, workspace_id, purpose, hash, created_at, expires_at)
    VALUES (${link_id}, ${account_id}, ${workspace_id}, ${purpose}, decode(repeat('07', 32), 'hex'), now(), now() + interval '1 hour')`
  const principal: LinkPrincipal = {
    ...{ kind: "link", link_id, account_id, workspace_id, purpose, provider: null, credential_id: null },
    hash: ApiKeyHash.make("07".repeat(32)),
    ...{ return_url: null, keys: null, created_at: yield* DateTime.now, expires_at: yield* DateTime.now }
  }
  const byLink = Effect.provideService(CurrentPrincipal, principal)
  const insertByLink = (n: number) =>
    repository.insert(account_id, plainCredential(workspace_id, uuid(n)), plainSealedKey(1)).pipe(byLink)
  const ended = Effect.map(
    admin<{ ended: string | null }>`SELECT ended FROM links WHERE id = ${link_id}`,
    ([row]) => row?.ended
  )
  return { admin, byLink, ended, insertByLink, links, principal, proxy, repository, stored }
})

it.live.each(["connect", "manage"] as const)(
  "a create by a link to %s is stored once if the database's answer is lost",
  function* (purpose) {
    const { admin, ended, insertByLink, proxy, stored } = yield* open(purpose)
    proxy.loseAnswer(stored)
    assert.isTrue(Option.isSome(yield* insertByLink(3)))
    assert.strictEqual(proxy.lost(), 1)
    const events = yield* eventsIn(admin)
    assert.deepStrictEqual(
      events.map(({ action, actor }) => ({ action, actor })),
      [{ action: "credential.create", actor: { kind: "link", link_id } }]
    )
    assert.strictEqual(yield* ended, purpose === "connect" ? "used" : null)
  }
)

it.live("a link to connect that was used refuses another create", function* () {
  const { admin, insertByLink } = yield* open("connect")
  assert.isTrue(Option.isSome(yield* insertByLink(3)))
  const exit = yield* Effect.exit(insertByLink(4))
  assert(Exit.isFailure(exit))
  assert.instanceOf(Cause.squash(exit.cause), LinkClosed)
  assert.lengthOf(yield* admin`SELECT 1 FROM credentials`, 1)
  assert.lengthOf(yield* eventsIn(admin), 1)
})

it.live("a link to connect can still be used after a create by it stored nothing", function* () {
  const { admin, ended, insertByLink } = yield* open("connect")
  yield* admin`UPDATE workspaces SET deleted_at = now()`
  assert.instanceOf(yield* Effect.flip(insertByLink(3)), WorkspaceGone)
  assert.isNull(yield* ended)
  yield* admin`UPDATE workspaces SET deleted_at = NULL`
  assert.isTrue(Option.isSome(yield* insertByLink(3)))
  assert.strictEqual(yield* ended, "used")
})

it.live("the exchange of a link's token succeeds if the database's answer is lost", function* () {
  const { links, principal, proxy } = yield* open("manage")
  const [next, another] = [ApiKeyHash.make("08".repeat(32)), ApiKeyHash.make("09".repeat(32))]
  proxy.loseAnswer("UPDATE 1")
  assert.isTrue(yield* links.replaceHash(principal, next))
  assert.strictEqual(proxy.lost(), 1)
  assert.isFalse(yield* links.replaceHash(principal, another), "the token was exchanged before")
})

describe("a reorder of credentials by a link", () => {
  /** Two credentials, and what sets their order by the link. */
  const ordering = Effect.gen(function* () {
    const opened = yield* open("manage")
    const { admin, byLink, insertByLink, repository } = opened
    for (const n of [3, 4]) yield* insertByLink(n)
    const provider = plainCredential(workspace_id, uuid(3)).provider
    const order = (...ids: ReadonlyArray<number>) =>
      byLink(
        repository.reorder(account_id, { workspace_id, provider, ids: ids.map((n) => CredentialId.make(uuid(n))) })
      )
    const stored = Effect.map(admin<{ id: string }>`SELECT id FROM credentials ORDER BY sort_order`, (rows) =>
      rows.map(({ id }) => id)
    )
    const revoke = admin`UPDATE links SET ended = 'revoked' WHERE id = ${link_id}`
    return { ...opened, order, revoke, stored }
  })

  it.live("is stored while the link is open, and is refused and stores nothing once the link is revoked", function* () {
    const { admin, order, revoke, stored } = yield* ordering
    assert.isTrue(Option.isNone(yield* order(4, 3)))
    assert.deepStrictEqual(yield* stored, [uuid(4), uuid(3)], "control")
    yield* revoke
    for (const ids of [
      [3, 4],
      [4, 3]
    ]) {
      const exit = yield* Effect.exit(order(...ids))
      assert(Exit.isFailure(exit))
      assert.instanceOf(Cause.squash(exit.cause), LinkClosed)
    }
    assert.deepStrictEqual(yield* stored, [uuid(4), uuid(3)])
    assert.lengthOf(
      (yield* eventsIn(admin)).filter(({ action }) => action === "credential.reorder"),
      1
    )
  })

  it.live("is refused and stores nothing if it waits for a revocation that commits", function* () {
    const { admin, order, stored } = yield* ordering
    const before = yield* stored
    const commit = yield* holdOpen(admin, "UPDATE links SET ended = 'revoked'")
    const waiting = yield* Effect.forkChild(Effect.exit(order(4, 3)))
    yield* untilWaiting(admin, 1)
    yield* commit
    const exit = yield* Fiber.join(waiting)
    assert(Exit.isFailure(exit))
    assert.instanceOf(Cause.squash(exit.cause), LinkClosed)
    assert.deepStrictEqual(yield* stored, before)
  })

  it.live("that has begun is stored before a concurrent revocation completes", function* () {
    const { admin, order, revoke, stored } = yield* ordering
    const release = yield* holdOpen(admin, "SELECT 1 FROM pools FOR UPDATE")
    const ordered = yield* Effect.forkChild(order(4, 3))
    yield* untilWaiting(admin, 1)
    const revoked = yield* Effect.forkChild(Effect.andThen(revoke, stored))
    yield* untilWaiting(admin, 2)
    yield* release
    assert.deepStrictEqual(yield* Fiber.join(revoked), [uuid(4), uuid(3)])
    yield* Fiber.join(ordered)
  })
})
