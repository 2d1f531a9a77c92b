import { Effect, Layer } from "effect"
import * as CipherLive from "../crypto/CipherLive.ts"
import * as LinkKeysLive from "../crypto/LinkKeysLive.ts"
import * as KeyringLive from "./KeyringLive.ts"
import * as ReadinessLive from "./ReadinessLive.ts"
import { Accounts } from "../service/accounts/Accounts.ts"
import * as Checkpointing from "../service/audit/Checkpointing.ts"
import * as Events from "../service/audit/Events.ts"
import * as Webhook from "../service/audit/Webhook.ts"
import * as WebhookLive from "./WebhookLive.ts"
import * as Credentials from "../service/credentials/Credentials.ts"
import * as Explanations from "../service/routing/Explanations.ts"
import { Links } from "../service/links/Links.ts"
import { Router } from "../service/routing/Router.ts"
import * as Idempotency from "../service/credentials/Idempotency.ts"
import * as ServiceSettings from "./ServiceSettings.ts"
import { readSettings, type Settings } from "./Settings.ts"

/**
 * Everything except HTTP: services and their ports. Records metrics in Effect's registry. To replace a port, provide
 * yours to a service's own layer, and the rest from this one: `Layer.fresh` makes Effect build that service separately.
 */
export const layerWith = (settings: Settings) =>
  Layer.mergeAll(
    Layer.fresh(Credentials.layer),
    Layer.fresh(Layer.merge(Explanations.layer, Router.layer)),
    Layer.fresh(Accounts.layer),
    Layer.fresh(Links.layer),
    Links.expiry,
    ReadinessLive.layer,
    KeyringLive.presence,
    Checkpointing.layer,
    Layer.provideMerge(Webhook.layer, Layer.merge(Events.layer, WebhookLive.layer(settings))),
    Idempotency.expiry
  ).pipe(
    Layer.provideMerge(LinkKeysLive.layer),
    Layer.provideMerge(CipherLive.layer),
    Layer.provideMerge(KeyringLive.withStores(settings)),
    Layer.provideMerge(ServiceSettings.layer(settings))
  )

/** `layerWith` the settings in the environment: for use in process, without a server. */
export const layer = Layer.unwrap(Effect.map(readSettings, layerWith))
