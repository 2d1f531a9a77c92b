import { Socket } from "node:net"
import { setFlagsFromString } from "node:v8"
import { runInNewContext } from "node:vm"
import { Arbitrary } from "effect"
import { ArrivingRequest, unadmittedBytes } from "../../src/http/ArrivingRequest.ts"
import { elementOf, integer } from "../support/memory/arbitraries.ts"
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

const mebibyte = 1024 * 1024
const isWiped = (part: Buffer) => part.equals(Buffer.alloc(part.length))

describe("a body that no handler reads yet", () => {
  it("uses about as much memory as it has bytes, however many chunks it arrives in", () => {
    const before = memory()
    const request = arriving(65_536, 1)
    assert.isBelow(memory() - before, 1_000_000)
    request.readAll(() => {})
    request.push(null)
    assert.strictEqual(request.takeBody().toString(), "x".repeat(65_536))
  })

  it("is dropped if it is the largest once all unread bodies together exceed 12 MiB", () => {
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

  it("is discarded after an early answer, and calls the listener for excess once if it exceeds 256 KiB", () => {
    const request = new ArrivingRequest(new Socket())
    let excess = 0
    request.discard(() => (excess += 1))
    for (let n = 0; n < 4; n++) assert.isTrue(request.push(Buffer.alloc(65_536)))
    assert.strictEqual(excess, 0)
    for (let n = 0; n < 4; n++) assert.isTrue(request.push(Buffer.alloc(65_536)))
    assert.strictEqual(excess, 1)
  })
})

describe("an arriving request", () => {
  const act = Arbitrary.all({
    kind: elementOf(["push", "push", "push", "push", "ask", "admit", "rest"] as const),
    bytes: integer(1, 3_000)
  })
  it.prop(
    "matches a simple reference model, however its body is split into chunks",
    {
      acts: Arbitrary.array(act, { minLength: 1, maxLength: 20 }),
      end: elementOf(["take", "forget", "discard"] as const),
      isDeclared: elementOf([true, false])
    },
    ({ acts, end, isDeclared }) => {
      const request = new ArrivingRequest(new Socket())
      let [reads, resumed] = [0, 0]
      request._read = () => void (reads += 1)
      request.resume = () => ((resumed += 1), request)
      let chunks = 0
      request.onChunk = () => (chunks += 1)
      const others = unadmittedBytes()
      const length = acts.reduce((sum, { bytes, kind }) => (kind === "push" ? sum + bytes : sum), 0)
      if (isDeclared) request.headers = { "content-length": String(length) }
      const parts: Array<Buffer> = []
      let [text, unread, isRead, told, expected] = ["", 0, false, 0, 0]
      const hasArrived = () => isDeclared && text.length === length
      for (const { bytes, kind } of acts) {
        if (kind === "push") {
          const letter = String.fromCharCode(97 + (parts.length % 26))
          const part = Buffer.alloc(bytes, letter)
          text += letter.repeat(bytes)
          unread += bytes
          parts.push(part)
          assert.strictEqual(request.push(part), isRead || hasArrived(), "is read on")
        } else if (kind === "ask") {
          isRead = true
          reads = 0
          request.readAll(() => (told += 1))
          assert.strictEqual(reads, hasArrived() ? 0 : 1)
        } else if (kind === "admit") {
          unread = 0
          request.markAdmitted()
        }
        if (isRead && (kind === "push" || kind === "ask")) expected += 1
        assert.strictEqual(request.hasArrived, hasArrived())
        assert.deepStrictEqual([request.received, request.isDropped, told], [text.length, false, expected])
        assert.strictEqual(unadmittedBytes() - others, unread, "is on nobody's account")
      }
      assert.strictEqual(chunks, parts.length)
      if (end === "take") {
        request.push(null)
        assert.strictEqual(told, isRead ? expected + 1 : 0)
        assert.strictEqual(request.takeBody().toString(), text)
        assert.isTrue(parts.slice(1).every(isWiped), "only the body is left")
        assert.strictEqual(request.takeBody().length, 0, "once")
        request.complete = true
        reads = 0
        request.readAll(() => {})
        assert.strictEqual(reads, 0, "there is nothing more to read")
      } else {
        if (end === "forget") request.wipe()
        else request.discard(() => {})
        assert.isTrue(parts.every(isWiped))
        assert.strictEqual(request.received, end === "forget" ? text.length : 0)
        assert.isTrue(request.push(Buffer.from("more")) || end === "forget")
        assert.strictEqual(told, expected, "nobody waits any more")
        request.discard(() => {})
      }
      assert.strictEqual(resumed, end === "discard" || end === "take" ? 2 : 1, "is read to its end")
      assert.strictEqual(unadmittedBytes(), others)
    }
  )

  it("drops its body if it is the largest and smaller bodies need the memory", () => {
    const large = arriving(1, 10 * mebibyte)
    const small = [arriving(1, mebibyte), arriving(1, 2 * mebibyte), arriving(1, 3 * mebibyte)]
    assert.isTrue(large.isDropped)
    assert.strictEqual(large.takeBody().length, 0)
    assert.deepStrictEqual(
      small.map(({ isDropped }) => isDropped),
      [false, false, false]
    )
    assert.deepStrictEqual(
      small.map((request) => request.takeBody().length / mebibyte),
      [1, 2, 3]
    )
  })

  it("drops its body once unread bodies fill 12 MiB, but still reads and counts the rest", () => {
    const others = unadmittedBytes()
    const most = 12 * mebibyte - others
    const request = new ArrivingRequest(new Socket())
    const parts = [Buffer.alloc(most, "x"), Buffer.from("xx"), Buffer.from("x")] as const
    assert.isFalse(request.push(parts[0]))
    assert.strictEqual(unadmittedBytes(), 12 * mebibyte)
    for (const part of parts.slice(1)) assert.isTrue(request.push(part))
    assert.isTrue(request.isDropped)
    assert.strictEqual(request.received, most + 3)
    assert.isTrue(parts.every(isWiped))
    assert.strictEqual(unadmittedBytes(), others)
    assert.strictEqual(request.takeBody().length, 0)
  })

  it("expects 100 Continue only with Expect: 100-continue, over HTTP/1.1, before any of its body arrives", () => {
    const asking = (headers: Record<string, string>, httpVersion: string, complete = false, body = "") => {
      const request = Object.assign(new ArrivingRequest(new Socket()), { complete, headers, httpVersion })
      if (body !== "") request.push(Buffer.from(body))
      request.wipe()
      return request.expectsContinue
    }
    const expect = "100-continue"
    assert.isTrue(asking({ expect }, "1.1"))
    assert.deepStrictEqual(
      [
        asking({}, "1.1"),
        asking({ expect }, "1.0"),
        asking({ expect }, "1.1", true),
        asking({ expect }, "1.1", false, "{")
      ],
      [false, false, false, false]
    )
  })
})
