import { Context, Data, type Effect } from "effect"

/** The keyring could not be reloaded; the instance keeps the one it has. */
export class KeyringNotReloaded extends Data.TaggedError("KeyringNotReloaded")<{ readonly message: string }> {}

/** Reloads the keyring of a running instance, one reload at a time, and logs the outcome. */
export class KeyringReload extends Context.Service<
  KeyringReload,
  { readonly reload: Effect.Effect<{ readonly kek_ids: ReadonlyArray<string> }, KeyringNotReloaded> }
>()("byok/KeyringReload") {}
