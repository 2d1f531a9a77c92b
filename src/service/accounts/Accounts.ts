import { Context, Data, DateTime, Effect, Layer, Option } from "effect"
import { SecureRandom } from "effect/crypto"
import { Conflict } from "../../domain/Errors.ts"
import { AccountId, type ApiKeyHash, type IdempotencyKey, WorkspaceId } from "../../domain/Identifiers.ts"
import type { ApiKeyRole } from "../../domain/Principal.ts"
import { AccountRepository, type ErasureStep, type NewApiKey } from "../../port/AccountRepository.ts"
import type { Answer } from "../../port/DatabaseFailure.ts"
import { makeApiKey } from "../../runtime/ApiKey.ts"
import { hmacWith } from "../credentials/Idempotency.ts"

/** No account, workspace, API key, credential or link has this id. */
export class NotKnown extends Data.TaggedError("NotKnown")<{
  readonly kind: "account" | "workspace" | "API key" | "credential" | "link"
}> {}

/** An API key with this hash exists already. */
export class HashTaken extends Data.TaggedError("HashTaken") {}

/** The account that this idempotency key created has been deleted; a repeat must not create it again. */
export class AccountDeleted extends Data.TaggedError("AccountDeleted") {}

/** The default workspace has credentials, so it cannot be deleted: requests that name no workspace use it. */
export class DefaultWorkspaceInUse extends Data.TaggedError("DefaultWorkspaceInUse")<{ readonly credentials: number }> {
  override get message() {
    return `The default workspace is not empty (credentials: ${this.credentials}): make another one the default first.`
  }
}

type ApiKeyInput = Pick<NewApiKey, "hash" | "name" | "role">

const rowsPerPage = 1000
const rowsErasedPerTransaction = 500

/** Creates, lists and deletes accounts, their workspaces and their API keys, for operators (D40). */
export class Accounts extends Context.Service<Accounts>()("byok/Accounts", {
  make: Effect.gen(function* () {
    const repository = yield* AccountRepository
    const random = yield* SecureRandom.SecureRandom
    const newKey = (role: ApiKeyRole) => Effect.provideService(makeApiKey(role), SecureRandom.SecureRandom, random)

    const storeAccount = Effect.fnUntraced(function* (account_id: AccountId, workspace_id: WorkspaceId, name: string) {
      const created_at = yield* DateTime.now
      const { hash, key } = yield* newKey("management")
      const firstKey = { hash, role: "management", created_at } as const
      const outcome = yield* repository.createAccount(
        { account_id, name },
        { workspace_id, name: "default", created_at },
        { ...firstKey, name: "first management key" }
      )
      return {
        outcome,
        firstKey,
        account: { account_id, workspace_id, management_key: key, management_key_hash: hash }
      }
    })

    const addApiKey = Effect.fnUntraced(function* (account_id: AccountId, input: ApiKeyInput) {
      const { hash, name, role } = input
      const created_at = yield* DateTime.now
      const outcome = yield* repository.addApiKey(account_id, { hash, name, role, created_at })
      if (outcome === "hash taken") return yield* new HashTaken()
      if (outcome === "no account") return yield* new NotKnown({ kind: "account" })
      return { hash, role }
    })

    /** Fails unless the account exists. */
    const requireAccount = Effect.fnUntraced(function* (account_id: AccountId) {
      if (!(yield* repository.exists(account_id))) return yield* new NotKnown({ kind: "account" })
    })

    /** Makes a list of up to 1,000 rows of an account after a row, which it fails for if that is unknown. */
    const makeList =
      <Id, Row>(
        kind: NotKnown["kind"],
        listFrom: (account_id: AccountId, first: Id | undefined, limit: number) => Answer<ReadonlyArray<Row>>
      ) =>
      (account_id: AccountId, after?: Id) => {
        const skipped = after === undefined ? 0 : 1
        return Effect.flatMap(listFrom(account_id, after, rowsPerPage + skipped), (rows) =>
          // An account has at least one row, perhaps deleted or revoked.
          rows.length > 0
            ? Effect.succeed(rows.slice(skipped))
            : new NotKnown({ kind: after === undefined ? "account" : kind })
        )
      }

    return {
      isEmpty: Effect.map(repository.hasAccounts, (hasAccounts) => !hasAccounts),

      /**
       * Creates an account with a default workspace. Returns its first management key, this once: only its hash is
       * stored.
       */
      createAccount: Effect.fn("Accounts.createAccount")(function* (name: string) {
        const [account_id, workspace_id] = [yield* random.uuidV7(), yield* random.uuidV7()]
        return (yield* storeAccount(AccountId.make(account_id), WorkspaceId.make(workspace_id), name)).account
      }),

      /**
       * Creates an account with ids derived from the idempotency key, or returns it if it exists under this name. Only
       * the hash of a management key is stored, so a repeat issues another key; earlier ones stay valid.
       */
      createAccountOnce: Effect.fn("Accounts.createAccountOnce")(function* (
        name: string,
        idempotency_key: IdempotencyKey
      ) {
        const account_id = AccountId.make(deriveId(idempotency_key, "account"))
        const workspace_id = WorkspaceId.make(deriveId(idempotency_key, "workspace"))
        const { account, firstKey, outcome } = yield* storeAccount(account_id, workspace_id, name)
        if (outcome === "created") return { ...account, replayed: false }
        if (outcome === "differs") return yield* Conflict.reused()
        if (outcome === "deleted") return yield* new AccountDeleted()
        const anotherKey = { ...firstKey, name: "management key of a repeated create" }
        const isAdded = (yield* repository.addApiKey(account_id, anotherKey)) === "added"
        return isAdded ? { ...account, replayed: true } : yield* new AccountDeleted()
      }),

      /** Returns up to 1,000 accounts after an id, in order of id. */
      listAccounts: (after?: AccountId) => repository.listAccounts(after, rowsPerPage),

      /** Fails unless the account exists and has the workspace, if one is passed. A deleted workspace counts. */
      requireAccount: Effect.fnUntraced(function* (account_id: AccountId, workspace_id?: WorkspaceId) {
        yield* requireAccount(account_id)
        if (workspace_id === undefined) return
        const workspace = yield* repository.findWorkspace(workspace_id)
        if (Option.isNone(workspace) || workspace.value.account_id !== account_id) {
          return yield* new NotKnown({ kind: "workspace" })
        }
      }),

      /**
       * Deletes an account for good, with its API keys, links, workspaces, credentials and idempotency records; only
       * the audit log keeps ids. After an interruption, another call resumes. `onProgress` gets totals of this call.
       */
      deleteAccount: Effect.fn("Accounts.deleteAccount")(function* (
        account_id: AccountId,
        onProgress: (deleted: Omit<ErasureStep, "done">) => Effect.Effect<void> = () => Effect.void
      ) {
        const at = yield* DateTime.now
        let credentials = 0
        let idempotency_records = 0
        for (let isFirst = true; ; isFirst = false) {
          const step = yield* repository.eraseAccount(account_id, at, rowsErasedPerTransaction)
          if (Option.isNone(step) && isFirst) return yield* new NotKnown({ kind: "account" })
          if (Option.isNone(step)) return { account_id, credentials }
          credentials += step.value.credentials
          idempotency_records += step.value.idempotency_records
          if (step.value.done) return { account_id, credentials }
          yield* onProgress({ credentials, idempotency_records })
        }
      }),

      createWorkspace: Effect.fn("Accounts.createWorkspace")(function* (account_id: AccountId, name: string) {
        const workspace_id = WorkspaceId.make(yield* random.uuidV7())
        const created_at = yield* DateTime.now
        const isCreated = yield* repository.createWorkspace(account_id, { workspace_id, name, created_at })
        return isCreated ? { workspace_id } : yield* new NotKnown({ kind: "account" })
      }),

      /** Deletes a workspace and returns the number of its credentials, which stay readable but serve no request. */
      deleteWorkspace: Effect.fn("Accounts.deleteWorkspace")(function* (
        workspace_id: WorkspaceId,
        account_id?: AccountId
      ) {
        const deletion = yield* repository.deleteWorkspace(workspace_id, yield* DateTime.now, true, account_id)
        if (Option.isNone(deletion)) return yield* new NotKnown({ kind: "workspace" })
        const { credentials, deleted_at } = deletion.value
        return deleted_at === null
          ? yield* new DefaultWorkspaceInUse({ credentials })
          : { workspace_id, deleted_at, credentials }
      }),

      makeDefault: Effect.fn("Accounts.makeDefault")(function* (workspace_id: WorkspaceId) {
        const workspace = yield* repository.findWorkspace(workspace_id)
        const isDefault =
          Option.isSome(workspace) && (yield* repository.makeDefault(workspace.value.account_id, workspace_id))
        return isDefault ? { workspace_id, is_default: true } : yield* new NotKnown({ kind: "workspace" })
      }),

      /** Returns up to 1,000 workspaces after one of them, in order of creation. */
      listWorkspaces: makeList("workspace", repository.listWorkspaces),

      /** Generates an API key and returns it, this once: only its hash is stored. */
      issueApiKey: Effect.fn("Accounts.issueApiKey")(function* (
        account_id: AccountId,
        { name, role }: Omit<ApiKeyInput, "hash">
      ) {
        const { hash, key } = yield* newKey(role)
        return { key, ...(yield* addApiKey(account_id, { hash, name, role })) }
      }),

      /** Adds an API key, generated elsewhere, by its hash. */
      importApiKey: Effect.fn("Accounts.importApiKey")(addApiKey),

      revokeApiKey: Effect.fn("Accounts.revokeApiKey")(function* (hash: ApiKeyHash, account_id?: AccountId) {
        const revoked_at = yield* repository.revokeApiKey(hash, yield* DateTime.now, account_id)
        return Option.isSome(revoked_at)
          ? { hash, revoked_at: revoked_at.value }
          : yield* new NotKnown({ kind: "API key" })
      }),

      /** Returns up to 1,000 API keys after one of them, in order of creation, with the revoked ones. */
      listApiKeys: makeList("API key", repository.listApiKeys),

      /** Returns the first 1,000 API keys that may send requests: live ordinary ones. */
      listClientKeys: (account_id: AccountId) => repository.listClientKeys(account_id, rowsPerPage)
    }
  })
}) {
  static readonly layer = Layer.effect(this, this.make)
}

/** Derives a UUID of version 8 that does not reveal the idempotency key. */
const deriveId = (idempotency_key: IdempotencyKey, entity: "account" | "workspace") => {
  const bytes = hmacWith(idempotency_key, "byok/create-account/1", entity).subarray(0, 16)
  // UUIDs of version 8 have these bits.
  bytes[6] = ((bytes[6] ?? 0) & 0x0f) | 0x80
  bytes[8] = ((bytes[8] ?? 0) & 0x3f) | 0x80
  return bytes.toString("hex").replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-")
}
