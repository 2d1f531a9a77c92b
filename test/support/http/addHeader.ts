import { Effect } from "effect"
import { HttpEffect, HttpServerResponse } from "effect/http"

/** Adds a header to the answer from anywhere below it, as only a build with a planted leak does. */
export const addHeader = (name: string, value: string) =>
  Effect.map(Effect.context(), (context) =>
    HttpEffect.appendPreResponseHandlerUnsafe(context, (_request, response) =>
      Effect.succeed(HttpServerResponse.setHeader(response, name, value))
    )
  )
