import { Layer } from "effect"
import { HttpApiBuilder } from "effect/http-api"
import { LinksApi } from "../api/LinksApi.ts"
import * as RequestDecodingLive from "../http/RequestDecodingLive.ts"
import { RequestQueues } from "../port/FairQueue.ts"
import * as Handlers from "./Handlers.ts"
import * as LinkAuthenticationLive from "./LinkAuthenticationLive.ts"
import * as Page from "./Page.ts"

/** The routes of the owner's page and of its API. */
export const layer = Layer.merge(HttpApiBuilder.layer(LinksApi), Page.layer).pipe(
  Layer.provide(Handlers.layer),
  Layer.provide([LinkAuthenticationLive.layer, RequestDecodingLive.layer]),
  Layer.provide(RequestQueues.layer)
)
