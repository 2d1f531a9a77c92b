import { Context, Data, type Effect } from "effect"

/** A change of the keyring that would make it unusable, or that the state of its keys does not allow. */
export class KeyringRefusal extends Data.TaggedError("KeyringRefusal")<{ readonly message: string }> {}

/** Changes the keyring file; the running instances use the new one after SIGHUP. */
export class KeyringEditor extends Context.Service<
  KeyringEditor,
  {
    /** Appends a new key, registers it with the database and returns its id; without an id one with the date is made. */
    readonly add: (id: string | undefined) => Effect.Effect<string, KeyringRefusal>
    /** Makes a registered key the primary one. Its event is recorded before the file is replaced. */
    readonly promote: (kek_id: string) => Effect.Effect<void, KeyringRefusal>
    /** Removes a key under which nothing is wrapped; from then on the database refuses rows that name it. */
    readonly retire: (kek_id: string) => Effect.Effect<void, KeyringRefusal>
  }
>()("byok/KeyringEditor") {}
