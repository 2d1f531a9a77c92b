import { Cause, Effect, Exit, Fiber } from "effect"
import { CredentialId } from "../../../src/domain/Identifiers.ts"
import type { CredentialUpdate } from "../../../src/port/CredentialRepository.ts"
import { eventsIn } from "../../support/database/auditEntries.ts"
import { account_id, openLossyStore, uuid, workspace_id } from "../../support/database/lossyStore.ts"
import { insertInto, plainCredential, plainSealedKey } from "../../support/database/plainCredential.ts"
import { disconnectWaiting, holdOpen, refuseInserts, untilWaiting } from "../../support/database/transactions.ts"
import { assert, describe, it } from "../../support/it.ts"

const id = CredentialId.make(uuid(3))

/** A stored credential, with operations on it through a proxy and by SQL. */
const open = Effect.gen(function* () {
  const { admin, proxy, repository, stored } = yield* openLossyStore
  const credential = yield* insertInto(repository)(account_id, plainCredential(workspace_id, id), plainSealedKey(1))
  return {
    admin,
    proxy,
    stored,
    credential,
    update: (given: Partial<CredentialUpdate>) =>
      repository.update(account_id, {
        credential: { ...credential, name: "new" },
        revision: 1,
        sealed: undefined,
        key_version: 1,
        fields: ["name"],
        ...given
      }),
    remove: repository.delete(account_id, id),
    row: Effect.map(
      admin<{ line: string }>`SELECT concat_ws(' ', name, revision, key_version) AS line FROM credentials`,
      ([row]) => row?.line
    ),
    acts: Effect.map(eventsIn(admin), (events) => events.map(({ action }) => action).slice(1))
  }
})

const rotated = { sealed: plainSealedKey(2), key_version: 2, fields: ["key", "name"] } as const
const renamed = {}

describe("an update", () => {
  it.live.each([
    ["of the name", renamed, "new 2 1", ["credential.update"]],
    ["of the key", rotated, "new 2 2", ["credential.update", "credential.rotate"]]
  ] as const)("%s is stored and audited once if the database's answer is lost (L9)", function* ([, given, row, acts]) {
    const opened = yield* open
    opened.proxy.loseAnswer(opened.stored)
    assert.isTrue(yield* opened.update(given))
    assert.strictEqual(opened.proxy.lost(), 1)
    assert.strictEqual(yield* opened.row, row)
    assert.deepStrictEqual<ReadonlyArray<string>>(yield* opened.acts, acts)
    assert.isFalse(
      yield* opened.update({
        ...given,
        credential: { ...opened.credential, name: "other" },
        sealed: plainSealedKey(3)
      })
    )
  })

  it.live("is recognised as stored when retried, even if its data key was rewrapped meanwhile (L9)", function* () {
    const { admin, proxy, row, stored, update } = yield* open
    yield* admin.unsafe(`
        CREATE FUNCTION rewrap() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN NEW.kek_id := 'kek-2'; NEW.wrapped_dek := decode(repeat('07', 60), 'hex'); RETURN NEW; END $$`)
    yield* admin.unsafe("CREATE TRIGGER rewrap BEFORE UPDATE ON credentials FOR EACH ROW EXECUTE FUNCTION rewrap()")
    proxy.loseAnswer(stored)
    assert.isTrue(yield* update(rotated))
    assert.strictEqual(proxy.lost(), 1)
    assert.strictEqual(yield* row, "new 2 2")
  })

  it.live("locks its pool again if the database's answer is lost, to wait for the replicas", function* () {
    const { admin, proxy, stored, update } = yield* open
    const lockedSince = Effect.map(
      admin<{ since: boolean }>`SELECT xmax::text NOT IN ('0', xmin::text) AS since FROM pools`,
      ([row]) => row?.since
    )
    assert.isTrue(yield* update(renamed))
    assert.isFalse(yield* lockedSince)
    proxy.loseAnswer(stored)
    assert.isTrue(yield* update({ revision: 2 }))
    assert.strictEqual(proxy.lost(), 1)
    assert.isTrue(yield* lockedSince)
  })

  it.live("fails and stores nothing if the database refuses its audit entry", function* () {
    const { admin, row, update } = yield* open
    const before = yield* row
    yield* refuseInserts(admin, "audit_entries", "23514")
    const exit = yield* Effect.exit(update(renamed))
    assert(Exit.isFailure(exit))
    assert.deepInclude(Cause.squash(exit.cause), { _tag: "DatabaseFailure", sqlstate: "23514" })
    assert.strictEqual(yield* row, before)
  })

  it.live.each([
    ["another name", "name = 'theirs'"],
    ["the same name and another policy", "name = 'new', disabled = true"]
  ] as const)("stores nothing if a concurrent update stored %s, even when it is retried (L9)", function* ([, set]) {
    const { acts, admin, row, update } = yield* open
    const before = yield* row
    const commit = yield* holdOpen(admin, `UPDATE credentials SET ${set}, revision = 2`)
    const caller = yield* Effect.forkChild(update(renamed))
    yield* disconnectWaiting(admin, commit)
    assert.isFalse(yield* Fiber.join(caller))
    assert.notStrictEqual(yield* row, before)
    assert.isEmpty(yield* acts)
  })
})

describe("a deletion", () => {
  it.live("is audited once and reported as done if the database's answer is lost (L11)", function* () {
    const { acts, proxy, remove, row, stored } = yield* open
    // The first answer with this text is that of the earlier look-up.
    proxy.loseAnswer(stored, 1)
    assert.isTrue(yield* remove)
    assert.strictEqual(proxy.lost(), 1)
    assert.isUndefined(yield* row)
    assert.deepStrictEqual(yield* acts, ["credential.delete"])
    assert.isFalse(yield* remove)
  })

  it.live("succeeds if the database's answer to the preceding look-up is lost (L11)", function* () {
    const { acts, proxy, remove } = yield* open
    proxy.loseAnswer("SELECT 1")
    assert.isTrue(yield* remove)
    assert.strictEqual(proxy.lost(), 1)
    assert.deepStrictEqual(yield* acts, ["credential.delete"])
  })

  it.live(
    "is audited with the credential's current label, even if that changed meanwhile (SECURITY.md, Audit)",
    function* () {
      const { admin, remove } = yield* open
      const commit = yield* holdOpen(admin, "UPDATE credentials SET label = 'sk-...AbCd', revision = 2")
      const caller = yield* Effect.forkChild(remove)
      yield* untilWaiting(admin, 1)
      yield* commit
      assert.isTrue(yield* Fiber.join(caller))
      assert.deepInclude((yield* eventsIn(admin)).at(-1), { action: "credential.delete", label: "sk-...AbCd" })
    }
  )

  it.live(
    "deletes nothing if another deletion came first, even if an old audit entry equals its own (L11)",
    function* () {
      const { acts, admin, remove } = yield* open
      const event = {
        action: "credential.delete",
        account_id,
        workspace_id,
        credential_id: id,
        provider: "openai",
        label: "***...***",
        actor: { kind: "service" }
      }
      yield* admin`INSERT INTO audit_entries (events) VALUES (${JSON.stringify([event])}::json)`
      const commit = yield* holdOpen(admin, "DELETE FROM credentials")
      const caller = yield* Effect.forkChild(remove)
      yield* disconnectWaiting(admin, commit)
      assert.isFalse(yield* Fiber.join(caller))
      assert.lengthOf(yield* acts, 1)
    }
  )
})
