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

describe("a body that no handler reads yet", () => {
  it("takes about as much memory as its bytes, however many parts it arrives in", () => {
    const before = memory()
    const request = arriving(65_536, 1)
    assert.isBelow(memory() - before, 1_000_000)
    request.readAll(() => {})
    request.push(null)
    assert.strictEqual(request.takeBody().toString(), "x".repeat(65_536))
  })

  it("is dropped if it is the largest when bodies exceed 12 MiB together", () => {
    const small = arriving(1, 1_000)
    const before = memory()
    const requests = Array.from({ length: 1_000 }, () => arriving(1, 62_000))
    const kept = requests.filter(({ isDropped }) => !isDropped).length
    assert.isAtMost(kept * 62_000, 12 * 1024 * 1024)
    assert.isAbove(kept, 190)
    assert.isBelow(memory() - before, 32 * 1024 * 1024)
    assert.isFalse(small.isDropped)
    for (const request of [...requests, small]) request.wipe()
    assert.isFalse(arriving(1, 62_000).isDropped, "room is given back")
  })

  it("is wiped once the request is answered without reading it", () => {
    const part = Buffer.from("a key")
    const request = new ArrivingRequest(new Socket())
    request.push(part)
    request.discard(() => {})
    assert.isTrue(part.every((byte) => byte === 0))
  })

  it("is discarded after the answer, up to 256 KiB", () => {
    const request = new ArrivingRequest(new Socket())
    let excess = 0
    request.discard(() => (excess += 1))
    for (let n = 0; n < 4; n++) assert.isTrue(request.push(Buffer.alloc(65_536)))
    assert.strictEqual(excess, 0)
    for (let n = 0; n < 4; n++) assert.isTrue(request.push(Buffer.alloc(65_536)))
    assert.strictEqual(excess, 1)
  })
})

it("bodies in many chunks are read on in turns, one in each turn of the event loop", async () => {
  const readOn: Array<number> = []
  const part = Buffer.from("x")
  for (const n of [0, 1, 2]) {
    const request = arriving(0, 0)
    request.readAll(() => {})
    request._read = () => readOn.push(n)
    for (let parts = 1; parts < 1024; parts++) assert.isTrue(request.push(part))
    assert.isFalse(request.push(part))
    assert.isFalse(request.push(part), "the rest of the piece changes nothing")
  }
  for (const count of [1, 2, 3]) {
    await new Promise(setImmediate)
    assert.deepStrictEqual(readOn, [0, 1, 2].slice(0, count))
  }
})
