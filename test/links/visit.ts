import axe from "axe-core"
import { Effect } from "effect"
import { openPage } from "../support/http/Browser.ts"
import { eventually } from "../support/process/eventually.ts"

const appearances = [
  [1280, "light"],
  [1280, "dark"],
  [390, "light"],
  [390, "dark"]
] as const

/** The page of a link, by what its owner reads: labels of fields, words on buttons. */
export const visit = Effect.fnUntraced(function* (url: string, width?: number, flags?: ReadonlyArray<string>) {
  const pixels = width ?? 1280
  const page = yield* openPage(url, pixels, "light", flags)
  const { evaluate } = page
  const text = Effect.map(evaluate("document.body?.innerText"), String)
  const reads = (words: string) => eventually(words, text, (shown) => shown.includes(words))
  const field = (label: string) =>
    `Array.from(document.querySelectorAll("label")).find((one) => one.textContent.trim() === ${JSON.stringify(label)})?.control`
  const button = (words: string) =>
    `Array.from(document.querySelectorAll("button")).find((one) => one.innerText.trim().startsWith(${JSON.stringify(words)}))`
  return {
    ...page,
    text,
    reads,
    button,
    has: (words: string) => Effect.map(evaluate(`${button(words)} !== undefined`), Boolean),
    click: (words: string) =>
      Effect.andThen(
        eventually(`a button ${words}`, evaluate(`${button(words)} !== undefined`), Boolean),
        evaluate(`${button(words)}.click()`)
      ),
    choose: (label: string, value: string) =>
      Effect.andThen(
        eventually(`a field ${label}`, evaluate(`${field(label)} !== undefined`), Boolean),
        evaluate(
          `Object.assign(${field(label)}, { value: ${JSON.stringify(value)} }).dispatchEvent(new Event("input", { bubbles: true }))`
        )
      ),
    /** Sets or clears a box. */
    tick: (label: string) => evaluate(`${field(label)}.click()`),
    fill: Effect.fnUntraced(function* (label: string, value: string) {
      yield* eventually(`a field ${label}`, evaluate(`${field(label)} !== undefined`), Boolean)
      yield* evaluate(`${field(label)}.focus(), ${field(label)}.select?.()`)
      yield* page.type(value)
    }),
    /** Goes to an address in the same tab, as a link that is opened there does. */
    go: (address: string) => evaluate(`void location.assign(${JSON.stringify(address)})`),
    /** Loses the answers to the next requests with a method. */
    loseAnswers: (method: string, times: number) =>
      evaluate(`{
        const real = fetch
        let left = ${times}
        fetch = async (url, options) => {
          const answer = await real(url, options)
          if (options?.method !== "${method}" || left-- <= 0) return answer
          throw new TypeError("lost")
        }
      }`),
    /** Whether the element with this text is inside the window. */
    isSeen: (words: string) =>
      Effect.map(
        evaluate(`{
          const holders = Array.from(document.querySelectorAll("p, small")).filter((one) => one.innerText.includes(${JSON.stringify(words)}))
          const { bottom, top } = holders.at(-1).getBoundingClientRect()
          top >= 0 && bottom <= innerHeight
        }`),
        Boolean
      ),
    valueOf: (label: string) => Effect.map(evaluate(`${field(label)}.value`), String),
    /** Faults found by axe, and elements that do not fit, at two widths, light and dark. */
    faults: Effect.gen(function* () {
      yield* evaluate(`${axe.source}; undefined`)
      const found = yield* Effect.forEach(
        appearances,
        Effect.fnUntraced(function* ([width, scheme]) {
          yield* page.look(width, scheme)
          const violations = yield* evaluate(
            "axe.run().then(({ violations }) => violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html)}`))"
          )
          const wide = Number(yield* evaluate("document.documentElement.scrollWidth"))
          return [...(violations as ReadonlyArray<string>), ...(wide > width ? [`${wide} pixels wide`] : [])].map(
            (fault) => `at ${width} pixels, ${scheme}: ${fault}`
          )
        })
      )
      yield* page.look(pixels, "light")
      return found.flat()
    }),
    /** The focused element: its id, or its tag name. */
    focused: Effect.map(evaluate("document.activeElement.id || document.activeElement.tagName"), String),
    /** Data that the page leaves in the browser for another page or visit. */
    kept: evaluate(`(async () => JSON.stringify([localStorage, sessionStorage, document.cookie, location.href, history.state,
      history.length, (await indexedDB.databases()).length, document.referrer, window.name]))()`)
  }
})
