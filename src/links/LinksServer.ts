import { Layer } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import { LinksApi } from "../api/LinksApi.ts"
import * as RequestDecodingLive from "../http/RequestDecodingLive.ts"
import { RequestQueues } from "../port/FairQueue.ts"
import * as Handlers from "./Handlers.ts"
import * as LinkAuthenticationLive from "./LinkAuthenticationLive.ts"

/** The routes of the API of the owner's page. */
export const layer = HttpApiBuilder.layer(LinksApi).pipe(
  Layer.provide(Handlers.layer),
  Layer.provide([LinkAuthenticationLive.layer, RequestDecodingLive.layer]),
  Layer.provide(RequestQueues.layer)
)
