import { Context } from "effect"

/** Length of a MAC in bytes. */
export const macLength = 16

/** Authenticates the texts of attempts, so that byok takes back only what an instance of it handed out. */
export class AttemptMac extends Context.Service<
  AttemptMac,
  {
    /** The id of the KEK whose key authenticates new texts. */
    readonly kekId: () => string
    /** The MAC of some bytes, by a key derived from a KEK; undefined if the keyring lacks that KEK. */
    readonly macOf: (kek_id: string, bytes: Uint8Array) => Buffer | undefined
  }
>()("byok/AttemptMac") {}
