import { Effect, Option, Schema } from "effect"
import { Command, Flag } from "effect/cli"
import { CurrentCaller } from "../domain/CurrentCaller.ts"
import { ApiKeyHash, WorkspaceId } from "../domain/Identifiers.ts"
import { Provider } from "../domain/Provider.ts"
import { EndpointKind } from "../domain/routing/Endpoint.ts"
import { Explanation } from "../domain/routing/Explanation.ts"
import { RoutingRequest } from "../domain/routing/RoutingRequest.ts"
import { Explanations } from "../port/Explanations.ts"
import { NotKnown } from "../service/Accounts.ts"
import * as Administration from "../wiring/Administration.ts"
import { asOperator } from "./asOperator.ts"
import { explanationLines } from "./explanationLines.ts"
import { account, parse } from "./parse.ts"
import { printAs } from "./print.ts"

const Providers = Schema.Array(Provider).check(
  Schema.makeFilter((given) => given.length > 0 && new Set(given).size === given.length)
)

const flag = (name: string, description: string) =>
  Flag.Boolean(name).pipe(Flag.withDescription(description), Flag.withDefault(false))

const regions = ["europe", "us"] as const

const unverified = "Seals not verified: no keyring is set, so this goes by the columns as they are."

const encode = Schema.encodeSync(Explanation)

export const explainCommand = Command.make(
  "explain",
  {
    account,
    workspace: Flag.String("workspace").pipe(
      Flag.withDescription("Id of the workspace (default: the account's default workspace)"),
      Flag.mapEffect(parse(WorkspaceId, "--workspace must be a UUID.")),
      Flag.optional
    ),
    providers: Flag.String("provider").pipe(
      Flag.withDescription("Providers of the model, in order and separated by commas"),
      Flag.map((given) => given.split(",")),
      Flag.mapEffect(parse(Providers, "--provider must be known provider slugs, each once."))
    ),
    model: Flag.String("model").pipe(
      Flag.withDescription("Model slug of the request"),
      Flag.mapEffect(parse(RoutingRequest.fields.model, "--model must have 1 to 255 characters."))
    ),
    api_key_hash: Flag.String("api-key-hash").pipe(
      Flag.withDescription("SHA-256 of the caller's API key"),
      Flag.mapEffect(parse(ApiKeyHash, "--api-key-hash must be 64 lowercase hexadecimal characters.")),
      Flag.optional
    ),
    user_id: Flag.String("user").pipe(Flag.withDescription("The caller's user id"), Flag.optional),
    host: Flag.Literals("host", regions).pipe(Flag.withDescription("Regional host of the request"), Flag.optional),
    requires_zdr: flag("zdr", "The request requires zero data retention"),
    kind: Flag.Literals("kind", EndpointKind.literals).pipe(
      Flag.withDescription("Kind of the endpoints (default: standard)"),
      Flag.withDefault("standard" as const)
    ),
    region: Flag.Literals("endpoint-region", regions).pipe(
      Flag.withDescription("Recorded region of the endpoints"),
      Flag.optional
    ),
    zdr: flag("endpoint-zdr", "The endpoints retain nothing"),
    unshared: flag("no-shared", "The gateway has no capacity of its own there"),
    providerFirst: flag("provider-first", "Try providers one by one, shared capacity included")
  },
  Effect.fnUntraced(function* (given) {
    const {
      account,
      api_key_hash,
      host,
      kind,
      model,
      providers,
      region,
      requires_zdr,
      unshared,
      user_id,
      workspace,
      zdr
    } = given
    const endpoint = { kind, region: Option.getOrNull(region), zdr, shared: !unshared }
    const explained = Effect.flatMap(Explanations, ({ explain, verifies }) =>
      Effect.map(
        explain({
          ...(Option.isSome(workspace) ? { workspace_id: workspace.value } : {}),
          model,
          api_key_hash: Option.getOrNull(api_key_hash),
          user_id: Option.getOrNull(user_id),
          host: Option.getOrElse(host, () => "global" as const),
          requires_zdr,
          targets: providers.map((provider) => ({ provider, endpoint })),
          strategy: given.providerFirst ? "provider_first" : "byok_first"
        }),
        (explanation) => ({ explanation, verifies })
      )
    ).pipe(
      Effect.provideService(CurrentCaller, { account_id: account }),
      Effect.catchTag("InvalidParams", () => Effect.fail(new NotKnown({ kind: "workspace" })))
    )
    const { explanation, verifies } = yield* asOperator(Administration.explanations)(explained)
    const text = [...explanationLines(explanation), ...(verifies ? [] : [unverified])].join("\n")
    yield* printAs({ ...encode(explanation), seals_verified: verifies }, text)
  })
).pipe(Command.withDescription("Explain which credentials serve a request, and why the others do not"))
