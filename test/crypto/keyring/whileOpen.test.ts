import { fstatSync } from "node:fs"
import { assert, it } from "@effect/vitest"
import { whileOpen } from "../../../src/crypto/keyring/SecretFile.ts"

it("a resource is open while it is used, and closed whatever happens", () => {
  const used: Array<number> = []
  const use = (descriptor: number) => {
    used.push(descriptor)
    return fstatSync(descriptor).isFile()
  }
  assert.isTrue(whileOpen(import.meta.filename, use))
  assert.throws(() => fstatSync(used[0] ?? -1), /EBADF/)
  const fail = (descriptor: number) => {
    use(descriptor)
    throw new Error("no")
  }
  assert.throws(() => whileOpen(import.meta.filename, fail), /^no$/)
  assert.throws(() => fstatSync(used[1] ?? -1), /EBADF/)
})
