import { Effect, Layer, Redacted, Result } from "effect"
import { Cipher } from "../../../src/port/Cipher.ts"

/** A cipher that keeps keys in the clear and bound to nothing, for tests of its callers and as a broken cipher. */
export const layer = Layer.succeed(Cipher, {
  seal: (key) =>
    Effect.sync(() => ({
      kek_id: "plain",
      wrapped_dek: new Uint8Array(60),
      sealed: Buffer.concat([Buffer.alloc(62), Buffer.from(Redacted.value(key) as string)])
    })),
  read: ({ sealed }, _context, use) => Result.succeed(use(Buffer.from(sealed.subarray(62)))),
  verify: () => Result.void
})
