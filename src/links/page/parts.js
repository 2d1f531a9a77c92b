// @ts-check
import { html, useEffect, useRef, useState } from "./preact.js"

/** Characters that are not seen, or turn around what is seen beside them. */
const unseen = /[\p{Cc}\p{Bidi_Control}\u200B\u2028\u2029\u2060\uFEFF]/gu

/** A text that others chose, such as a name: it stays by itself, and shows what it hides. */
export const Name = (/** @type {{ of: string }} */ { of }) =>
  html`<bdi
    >${of.replace(unseen, (one) => `[U+${one.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}]`)}</bdi
  >`

/** @type {(text: any) => void} */
let tell = () => {}

/** Says what became of an act, where it is seen and heard: at the lower edge of the window. */
export const say = (/** @type {any} */ text) => tell(text)

export const Said = () => {
  const [said, set] = useState(/** @type {any} */ (""))
  useEffect(() => void (tell = set), [])
  return html`<div class="said" role="status">${said && html`<p class="notice">${said}</p>`}</div>`
}

/** A heading that has the focus when its view opens, so that a screen reader begins there. */
export const Heading = (/** @type {{ children?: any }} */ { children }) => {
  const heading = useRef(/** @type {HTMLElement | null} */ (null))
  useEffect(() => heading.current?.focus(), [])
  return html`<h1 ref=${heading} tabindex="-1">${children}</h1>`
}

/**
 * A time as one tells it, on its day: how long ago, or how long until then; it goes on while one looks.
 * @param {{ at: string | null | undefined, over?: () => void }} props
 */
export const Ago = ({ at, over = () => {} }) => {
  const [now, set] = useState(Date.now())
  const seconds = Math.ceil((Date.parse(at ?? "") - now) / 1000)
  useEffect(() => {
    const timer = setInterval(() => set(Date.now()), 1000)
    return () => clearInterval(timer)
  }, [])
  useEffect(() => {
    if (seconds <= 0 && seconds % 5 === 0) over()
  }, [seconds])
  if (!at) return "never"
  const [date, minutes] = [new Date(at), Math.trunc(seconds / 60)]
  const format = new Intl.RelativeTimeFormat(undefined, { numeric: "auto" })
  const told =
    Math.abs(minutes) >= 1440
      ? date.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" })
      : Math.abs(minutes) >= 60
        ? format.format(Math.trunc(minutes / 60), "hour")
        : minutes
          ? format.format(minutes, "minute")
          : format.format(Math.max(seconds, 0), "second")
  return html`<time datetime=${at} title=${date.toLocaleString()}>${told}</time>`
}

/**
 * A field with its label, a hint, and what is wrong with it: a choice if it has options, or of several lines.
 * @param {{ id: string, label: string, hint?: any, error?: string | undefined, children?: any, multiline?: any, [attribute: string]: any }} field
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

/** Rows of a table, by their names. */
export const Rows = (/** @type {{ of: Record<string, any> }} */ { of }) =>
  Object.entries(of).map(
    ([name, value]) =>
      html`<tr>
        <th scope="row">${name}</th>
        <td>${value}</td>
      </tr>`
  )
