import { randomBytes } from "node:crypto"
import { makeKek } from "../../src/crypto/keyring/Keyring.ts"
import { open, seal } from "../../src/crypto/SealingFormat1.ts"

const perSecond = (operation: () => unknown, seconds: number) => {
  const until = performance.now() + seconds * 1000
  let count = 0
  while (performance.now() < until) for (let i = 0; i < 100; i += 1, count += 1) operation()
  return count / seconds
}

/** How many keys are sealed and opened in a second, on one core. */
export const sealing = (seconds: number) => {
  const kek = makeKek("kek-bench", randomBytes(32))
  const key = Buffer.from("sk-bench-0123456789-0123456789-0123456789-AbCd")
  const context = randomBytes(300)
  const keks = new Map([[kek.kek_id, kek]])
  const sealed = seal(kek, key, context)
  return {
    seal: perSecond(() => seal(kek, key, context), seconds),
    open: perSecond(() => open(keks, sealed, context), seconds)
  }
}
