import { existsSync } from "node:fs"
import { readdir, readFile } from "node:fs/promises"
import { Effect } from "effect"
import { HttpRouter, HttpServerResponse } from "effect/http"
import { errorResponse } from "../http/Envelope.ts"
import { NotFound } from "../domain/Errors.ts"

/** Forbids content of other origins, framing, forms, caching and referrers, and cuts the page off from its opener. */
const headers = {
  "content-security-policy":
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  "cross-origin-opener-policy": "same-origin",
  "cache-control": "no-store",
  "referrer-policy": "no-referrer",
  "x-content-type-options": "nosniff"
}

/** The files of the page that are not in its folder, with their modules. The build copies them into the folder. */
const modules: Readonly<Record<string, string>> = {
  "hpke.js": "hpke",
  "preact.js": "htm/preact/standalone",
  "simple.css": "simpledotcss/simple.min.css",
  "label.js": "../domain/labelOf.js",
  "keyFault.js": "../domain/keyFault.js"
}

const contentTypes: Readonly<Record<string, string>> = { html: "text/html", js: "text/javascript", css: "text/css" }

const locationOf = (file: string) => {
  const inFolder = new URL(`./page/${file}`, import.meta.url)
  const name = modules[file]
  return name === undefined || existsSync(inFolder) ? inFolder : new URL(import.meta.resolve(name))
}

const load = (file: string) =>
  Effect.map(
    Effect.promise(() => readFile(locationOf(file))),
    (bytes) =>
      HttpServerResponse.uint8Array(bytes, {
        contentType: `${contentTypes[file.split(".").at(-1) ?? ""]}; charset=utf-8`,
        headers
      })
  )

/** Serves the owner's page at `/keys` and its files, each read once. */
export const layer = HttpRouter.use(
  Effect.fnUntraced(function* (router) {
    const files = new Map<string, Effect.Effect<HttpServerResponse.HttpServerResponse>>()
    const names = yield* Effect.promise(() => readdir(new URL("./page/", import.meta.url)))
    const pageFiles = names.filter((file) => /\.(html|css|js)$/.test(file))
    for (const file of new Set([...pageFiles, ...Object.keys(modules)]))
      files.set(file, yield* Effect.cached(load(file)))
    const scripts = Array.from(files.keys()).filter((file) => file.endsWith(".js"))
    // Lets browsers load all modules at once: they import each other several levels deep.
    const preloads = scripts.map((file) => `<keys/${file}>; rel=modulepreload`).join(", ")
    const responseFor = (file: string) => files.get(file) ?? Effect.succeed(errorResponse(new NotFound()))
    const page = Effect.map(responseFor("index.html"), HttpServerResponse.setHeader("link", preloads))
    yield* router.add("GET", "/keys", page)
    yield* router.add(
      "GET",
      "/keys/:file",
      Effect.flatMap(HttpRouter.RouteContext, ({ params }) => responseFor(params["file"] ?? ""))
    )
  })
)
