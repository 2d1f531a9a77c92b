import { IncomingMessage, ServerResponse } from "node:http"
import { Socket } from "node:net"
import { Arbitrary, Schema } from "effect"
import { ClientResponse, Connection, cutOff, type Exchange, whenLost } from "../../src/http/Connection.ts"
import { integer } from "../support/memory/arbitraries.ts"
import { assert, describe, it } from "../support/it.ts"

const Step = Schema.Struct({
  act: Schema.Literals(["ask", "ask", "ask", "ask", "answer", "answer", "break"]),
  bytes: Schema.Literals([100, 1_000, 8_192, 40_000]),
  isWatched: Schema.Boolean,
  isSent: Schema.Literals([true, true, true, false]),
  isRead: Schema.Boolean
})
type Step = typeof Step.Type
const anySteps = Arbitrary.flatMap(integer(1, 80), (length) =>
  Arbitrary.array(Arbitrary.schema(Step), { minLength: length, maxLength: length })
)

/** A simple reference: keeps all requests in one list, and searches the list each time. */
const reference = () => {
  type State = "waits" | "begun" | "sent" | "read" | "over"
  const requests: Array<{ readonly id: number; readonly bytes: number; readonly isWatched: boolean; state: State }> = []
  const events: Array<string> = []
  const inState = (state: State) => requests.filter((one) => one.state === state)
  const lose = (one: (typeof requests)[number]) => {
    one.state = "over"
    if (one.isWatched) events.push(`${one.id} lost`)
  }
  const next = () => {
    const [first] = inState("waits")
    if (inState("begun").length > 0 || first === undefined) return
    first.state = "begun"
    events.push(`${first.id} begins`)
  }
  return {
    events,
    ask: (id: number, { bytes, isWatched }: Step) => {
      const waiting = inState("waits")
      const isBusy = inState("begun").length > 0
      const sum = waiting.reduce((sum, one) => sum + one.bytes, 0)
      if (isBusy && (waiting.length >= 8 || sum + bytes > 32 * 1024)) return void events.push(`${id} is too much`)
      if (!isBusy) for (const one of inState("sent")) one.state = "read"
      requests.push({ id, bytes, isWatched, state: "waits" })
      next()
    },
    answer: ({ isSent }: Step) => {
      const [current] = inState("begun")
      if (current === undefined) return
      if (isSent) current.state = "sent"
      else lose(current)
      next()
    },
    pending: () => [...inState("begun"), ...inState("waits")].map(({ id }) => id),
    end: (isRead: boolean) => {
      if (!isRead) inState("sent").forEach(lose)
      for (const one of inState("waits")) events.push(`${one.id} is left`)
      requests.length = 0
    }
  }
}

const subject = () => {
  let connection = new Connection<Exchange & { readonly id: number }>()
  const events: Array<string> = []
  return {
    events,
    ask: (id: number, { bytes, isWatched }: Step) => {
      if (connection.isFullFor(() => bytes)) return void events.push(`${id} is too much`)
      const onLost = isWatched ? () => void events.push(`${id} lost`) : undefined
      const waits = connection.add({ id, begin: () => events.push(`${id} begins`), onLost }, () => bytes)
      assert.strictEqual(waits, connection.current?.id !== id)
    },
    answer: ({ isSent }: Step) => {
      if (connection.current === undefined) return
      connection.end(isSent)
      connection.beginNext()
    },
    pending: () => connection.pending.map(({ id }) => id),
    end: (isRead: boolean) => {
      for (const { id } of connection.close(isRead)) events.push(`${id} is left`)
      connection = new Connection()
    }
  }
}

describe("a connection", () => {
  it.prop("matches a reference model, however its requests are pipelined", { steps: anySteps }, ({ steps }) => {
    const subjects = [subject(), reference()]
    for (const [id, step] of [...steps, { ...steps[0], act: "break", isRead: false } as Step].entries()) {
      for (const one of subjects) {
        if (step.act === "ask") one.ask(id, step)
        else if (step.act === "answer") one.answer(step)
        else one.end(step.isRead)
      }
      assert.deepStrictEqual(subjects[0]?.events, subjects[1]?.events)
      assert.deepStrictEqual(subjects[0]?.pending(), subjects[1]?.pending())
    }
  })

  it("reports only the last 32 answers as lost when it closes before its client has read them", () => {
    const connection = new Connection<Exchange>()
    const lost: Array<number> = []
    const ask = (id: number) => connection.add({ begin: () => {}, onLost: () => lost.push(id) }, () => 1)
    ask(0)
    for (let id = 1; id <= 100; id++) {
      ask(id)
      connection.end(true)
      connection.beginNext()
    }
    connection.close(false)
    assert.deepStrictEqual(
      lost,
      Array.from({ length: 32 }, (_, n) => 68 + n)
    )
  })
})

describe("a response to a client", () => {
  const request = new IncomingMessage(new Socket())

  it("calls its onLost listener when it is lost, or immediately if it was lost before", () => {
    const lost: Array<string> = []
    const response = new ClientResponse(request)
    assert.strictEqual(response.headBytes, 0)
    response.begin()
    whenLost(response, () => lost.push("sent"))
    assert.deepStrictEqual(lost, [])
    response.onLost?.()
    const gone = new ClientResponse(request).destroy()
    whenLost(gone, () => lost.push("gone"))
    assert.isUndefined(gone.onLost)
    const foreign = new ServerResponse(request)
    whenLost(foreign, () => lost.push("foreign"))
    assert.notProperty(foreign, "onLost")
    assert.deepStrictEqual(lost, ["sent", "gone"])
  })

  it("ignores strictContentLength, with which Node would write a needless empty chunk", () => {
    const response = new ClientResponse(request)
    response.strictContentLength = true
    assert.isFalse(response.strictContentLength)
  })
})

describe("a connection that is cut off", () => {
  it("is reset, or destroyed where Node cannot reset it", () => {
    const calls: Array<string> = []
    const socketThat = (canReset: boolean) =>
      ({
        resetAndDestroy: () => {
          calls.push("reset")
          if (!canReset) throw new Error("not TCP")
        },
        destroy: () => calls.push("destroy")
      }) as unknown as Socket
    cutOff(socketThat(true))
    assert.deepStrictEqual(calls, ["reset"])
    cutOff(socketThat(false))
    assert.deepStrictEqual(calls, ["reset", "reset", "destroy"])
  })
})
