import { Socket } from "node:net"
import { setFlagsFromString } from "node:v8"
import { runInNewContext } from "node:vm"
import { ArrivingRequest } from "../../src/http/ArrivingRequest.ts"
import { assert, describe, it } from "../support/it.ts"

setFlagsFromString("--expose-gc")
const collect = runInNewContext("gc") as () => void

/** A collection waits for the sweep of the one before, which frees buffers in the background. */
const memory = () => {
  collect()
  collect()
  const { arrayBuffers, heapUsed } = process.memoryUsage()
  return arrayBuffers + heapUsed
}

const arriving = (parts: number, bytes: number) => {
  const request = new ArrivingRequest(new Socket())
  for (let n = 0; n < parts; n++) request.push(Buffer.alloc(bytes, "x"))
  return request
}

describe("a body that nobody has asked for", () => {
  it("takes about its bytes, in however many parts it arrives", () => {
    const before = memory()
    const request = arriving(65_536, 1)
    assert.isBelow(memory() - before, 1_000_000)
    request.readOn(() => {})
    request.push(null)
    assert.strictEqual(request.takeBody().toString(), "x".repeat(65_536))
  })

  it("is lost if it is the largest of too many, and those that are not stay within 12 MiB", () => {
    const small = arriving(1, 1_000)
    const before = memory()
    const requests = Array.from({ length: 1_000 }, () => arriving(1, 62_000))
    const kept = requests.filter(({ isLost }) => !isLost).length
    assert.isAtMost(kept * 62_000, 12 * 1024 * 1024)
    assert.isAbove(kept, 190)
    assert.isBelow(memory() - before, 32 * 1024 * 1024)
    assert.isFalse(small.isLost)
    for (const request of [...requests, small]) request.forget()
    assert.isFalse(arriving(1, 62_000).isLost, "room is given back")
  })

  it("is wiped once the request is answered without it", () => {
    const part = Buffer.from("a key")
    const request = new ArrivingRequest(new Socket())
    request.push(part)
    request.discard(() => {})
    assert.isTrue(part.every((byte) => byte === 0))
  })

  it("is discarded to its end, unless that is more than 256 KiB", () => {
    const request = new ArrivingRequest(new Socket())
    let excess = 0
    request.discard(() => (excess += 1))
    for (let n = 0; n < 4; n++) assert.isTrue(request.push(Buffer.alloc(65_536)))
    assert.strictEqual(excess, 0)
    for (let n = 0; n < 4; n++) assert.isTrue(request.push(Buffer.alloc(65_536)))
    assert.strictEqual(excess, 1)
  })
})
