import { IncomingMessage } from "node:http"
import { Socket } from "node:net"
import { Arbitrary, Schema } from "effect"
import { ClientResponse, Connection, cutOff, type Exchange } from "../../src/http/Connection.ts"
import { integer } from "../support/memory/arbitraries.ts"
import { assert, describe, it } from "../support/it.ts"

const Step = Schema.Struct({
  act: Schema.Literals(["ask", "ask", "ask", "ask", "answer", "answer", "break"]),
  bytes: Schema.Literals([100, 1_000, 8_192, 40_000])
})
type Step = typeof Step.Type
const anySteps = Arbitrary.flatMap(integer(1, 80), (length) =>
  Arbitrary.array(Arbitrary.schema(Step), { minLength: length, maxLength: length })
)

/** A simple reference: keeps all requests in one list, and searches the list each time. */
const reference = () => {
  type State = "waits" | "begun" | "over"
  const requests: Array<{ readonly id: number; readonly bytes: number; state: State }> = []
  const events: Array<string> = []
  const inState = (state: State) => requests.filter((one) => one.state === state)
  const next = () => {
    const [first] = inState("waits")
    if (inState("begun").length > 0 || first === undefined) return
    first.state = "begun"
    events.push(`${first.id} begins`)
  }
  return {
    events,
    ask: (id: number, { bytes }: Step) => {
      const waiting = inState("waits")
      const isBusy = inState("begun").length > 0
      const sum = waiting.reduce((sum, one) => sum + one.bytes, 0)
      if (isBusy && (waiting.length >= 8 || sum + bytes > 32 * 1024)) return void events.push(`${id} is too much`)
      requests.push({ id, bytes, state: "waits" })
      next()
    },
    answer: () => {
      const [current] = inState("begun")
      if (current === undefined) return
      current.state = "over"
      next()
    },
    pending: () => [...inState("begun"), ...inState("waits")].map(({ id }) => id),
    end: () => {
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
    ask: (id: number, { bytes }: Step) => {
      if (connection.isFullFor(() => bytes)) return void events.push(`${id} is too much`)
      const waits = connection.add({ id, begin: () => events.push(`${id} begins`) }, () => bytes)
      assert.strictEqual(waits, connection.current?.id !== id)
    },
    answer: () => {
      if (connection.current === undefined) return
      connection.end()
      connection.beginNext()
    },
    pending: () => connection.pending.map(({ id }) => id),
    end: () => {
      for (const { id } of connection.close()) events.push(`${id} is left`)
      connection = new Connection()
    }
  }
}

describe("a connection", () => {
  it.prop("matches a reference model, however its requests are pipelined", { steps: anySteps }, ({ steps }) => {
    const subjects = [subject(), reference()]
    for (const [id, step] of [...steps, { ...steps[0], act: "break" } as Step].entries()) {
      for (const one of subjects) {
        if (step.act === "ask") one.ask(id, step)
        else if (step.act === "answer") one.answer()
        else one.end()
      }
      assert.deepStrictEqual(subjects[0]?.events, subjects[1]?.events)
      assert.deepStrictEqual(subjects[0]?.pending(), subjects[1]?.pending())
    }
  })
})

describe("a response to a client", () => {
  const request = new IncomingMessage(new Socket())

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
