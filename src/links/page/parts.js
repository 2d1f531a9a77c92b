// @ts-check
import { html, useEffect, useRef, useState } from "./preact.js"

/** Invisible characters, and those that reverse the direction of text. */
const hiddenCharacters = /[\p{Cc}\p{Bidi_Control}\u200B\u2028\u2029\u2060\uFEFF]/gu

/** A text that somebody else chose, such as a name. Shows hidden characters, and cannot reverse the text around it. */
export const Name = (/** @type {{ of: string }} */ { of }) =>
  html`<bdi
    >${of.replace(hiddenCharacters, (one) => `[U+${one.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}]`)}</bdi
  >`

/** @type {(text: any) => void} */
let setMessage = () => {}

/** Shows a message at the bottom of the window, and has screen readers read it out; "" removes it. */
export const say = (/** @type {any} */ text) => setMessage(text)

/** Shows the message of `say`. */
export const Message = () => {
  const [text, set] = useState(/** @type {any} */ (""))
  useEffect(() => void (setMessage = set), [])
  return html`<div class="said" role="status">${text && html`<p class="notice">${text}</p>`}</div>`
}

/** A heading that takes the focus when its view opens, so that screen readers begin there. */
export const Heading = (/** @type {{ children?: any }} */ { children }) => {
  const heading = useRef(/** @type {HTMLElement | null} */ (null))
  useEffect(() => heading.current?.focus(), [])
  return html`<h1 ref=${heading} tabindex="-1">${children}</h1>`
}

/**
 * A time in words, updated every second: relative within a day, else a date. Calls `onPassed` when the time has passed,
 * and then every five seconds.
 * @param {{ at: string | null | undefined, onPassed?: () => void }} props
 */
export const Ago = ({ at, onPassed = () => {} }) => {
  const [now, set] = useState(Date.now())
  const seconds = Math.ceil((Date.parse(at ?? "") - now) / 1000)
  useEffect(() => {
    const timer = setInterval(() => set(Date.now()), 1000)
    return () => clearInterval(timer)
  }, [])
  useEffect(() => {
    if (seconds <= 0 && seconds % 5 === 0) onPassed()
  }, [seconds])
  if (!at) return "never"
  const [date, minutes] = [new Date(at), Math.trunc(seconds / 60)]
  const format = new Intl.RelativeTimeFormat(undefined, { numeric: "auto" })
  const words =
    Math.abs(minutes) >= 1440
      ? date.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" })
      : Math.abs(minutes) >= 60
        ? format.format(Math.trunc(minutes / 60), "hour")
        : minutes
          ? format.format(minutes, "minute")
          : format.format(Math.max(seconds, 0), "second")
  return html`<time datetime=${at} title=${date.toLocaleString()}>${words}</time>`
}

/**
 * A field with its label, hint and error: a choice if it has options as children, a text of several lines if
 * `multiline`, else one line. Further attributes are those of the HTML element.
 * @param {{ id: string, label: string, hint?: any, error?: string | undefined, children?: any, multiline?: any,
 *   [attribute: string]: any }} field
 */
export const Field = ({ children, error, hint, id, label, multiline, ...attributes }) => {
  const tag = children ? "select" : multiline ? "textarea" : "input"
  return html`<p>
    <label for=${id}>${label}</label>
    <${tag}
      id=${id}
      name=${id}
      aria-describedby=${`${id}-hint ${id}-error`}
      aria-invalid=${error && "true"}
      ...${attributes}
      >${children}<//
    >
    ${hint && html`<small id=${`${id}-hint`}>${hint}</small>`}
    ${error && html`<small class="error" id=${`${id}-error`}>${error}</small>`}
  </p>`
}

/** Rows of a table, one per member: its name as the row's header, and its value. */
export const Rows = (/** @type {{ of: Record<string, any> }} */ { of }) =>
  Object.entries(of).map(
    ([name, value]) =>
      html`<tr>
        <th scope="row">${name}</th>
        <td>${value}</td>
      </tr>`
  )
