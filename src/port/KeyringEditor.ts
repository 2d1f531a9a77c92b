import { Context, Data, type Effect } from "effect"

/** A change that would make the keyring unusable, or that the state of its keys does not allow. */
export class KeyringRefusal extends Data.TaggedError("KeyringRefusal")<{ readonly message: string }> {}

/** Changes the keyring file; running instances reload it on SIGHUP. */
export class KeyringEditor extends Context.Service<
  KeyringEditor,
  {
    /** Appends a new key, registers it with the database and returns its id, which defaults to one with the date. */
    readonly add: (id: string | undefined) => Effect.Effect<string, KeyringRefusal>
    /** Makes a registered key the primary key. The audit event is recorded before the file is replaced. */
    readonly promote: (kek_id: string) => Effect.Effect<void, KeyringRefusal>
    /** Removes a key that no longer wraps anything; from then on the database refuses rows that name it. */
    readonly retire: (kek_id: string) => Effect.Effect<void, KeyringRefusal>
  }
>()("byok/KeyringEditor") {}
