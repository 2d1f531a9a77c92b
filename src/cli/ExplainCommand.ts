import { Effect, Option, Schema } from "effect"
import { Command, Flag } from "effect/cli"
import { ApiKeyHash, WorkspaceId } from "../domain/Identifiers.ts"
import { Provider } from "../domain/Provider.ts"
import { EndpointKind, routingFields } from "../domain/routing/RoutingRequest.ts"
import { Explanation } from "../domain/routing/Explanation.ts"
import { Explanations } from "../port/Explanations.ts"
import { NotKnown } from "../service/accounts/Accounts.ts"
import * as CommandLayers from "../wiring/CommandLayers.ts"
import { account, flag, optionalText, parse, parseProvider, toggle } from "./Arguments.ts"
import { aligned, printable, printJsonOr, refusedAs, type CommandFailed } from "./Output.ts"

const Providers = Schema.Array(Provider).check(Schema.makeFilter((slugs) => new Set(slugs).size === slugs.length))

const regions = ["europe", "us"] as const

const unverified = "Seals not verified: no keyring is set, so this goes by the columns as they are."

const encode = Schema.encodeSync(Explanation)

type ProviderVerdicts = Explanation["providers"][number]
type Step = Explanation["steps"][number]

const indented = (line: string) => `  ${line}`

const stepCells = (step: Step, index: number) => {
  if (step.kind === "shared") return [String(index + 1), step.provider, "shared", "", "capacity of the gateway"]
  const { credential_id, label, name, on_trial, provider, region, section } = step
  const notes = [
    "own key",
    ...(section === "fallback" ? ["fallback"] : []),
    ...(region === null ? [] : [`region ${region}`]),
    ...(on_trial ? ["on trial: one request at a time"] : [])
  ]
  return [String(index + 1), provider, name ?? credential_id, label, notes.join(", ")]
}

/** The index at which to list a provider's removed shared capacity: before its first fallback key, else the end. */
const indexOfRemovedShared = (steps: ReadonlyArray<Step>, provider: string) => {
  const indexOfFallback = steps.findIndex(
    (step) => step.kind === "own" && step.provider === provider && step.section === "fallback"
  )
  return indexOfFallback < 0 ? steps.length : indexOfFallback
}

const isSharedRemoved = ({ shared }: ProviderVerdicts) => shared.position === null

/** Formats the attempts in order, with removed shared capacity in its place; then unused credentials, with reasons. */
const explanationLines = ({ model, providers, retry_at, steps }: Explanation): ReadonlyArray<string> => {
  /** The rows for removed shared capacity to list just before the step at `index`. */
  const removedBefore = (index: number) =>
    providers
      .filter((verdicts) => isSharedRemoved(verdicts) && indexOfRemovedShared(steps, verdicts.provider) === index)
      .map(({ provider, shared }) => {
        const reasons = shared.removed.map(({ message }) => message).join("; ")
        return ["-", provider, "shared", "", `removed: ${reasons}`]
      })
  // The undefined step stands for the end, where removed capacity may have its row.
  const attemptRows = [...steps, undefined].flatMap((step, index) => [
    ...removedBefore(index),
    ...(step === undefined ? [] : [stepCells(step, index)])
  ])
  const unused = providers.flatMap(({ credentials, provider }) =>
    credentials
      .filter(({ position }) => position === null)
      .flatMap(({ credential_id, excluded, label, name }) =>
        excluded.map((exclusion, index) => {
          const hint = exclusion.reason === "model_not_allowed" ? exclusion.hint : undefined
          const sentence = hint === undefined ? exclusion.message : `${exclusion.message} (${hint})`
          return index === 0 ? [provider, name ?? credential_id, label, sentence] : ["", "", "", sentence]
        })
      )
  )
  return [
    printable(model),
    ...aligned(attemptRows).map(indented),
    ...(unused.length === 0 ? [] : ["not used", ...aligned(unused).map(indented)]),
    ...(steps.length === 0 ? ["Nothing serves this request."] : []),
    ...(retry_at === null
      ? []
      : [`The first key is tried again at ${new Date(retry_at.epochMilliseconds).toISOString()}.`])
  ]
}

export const explainCommand = Command.make(
  "explain",
  {
    account,
    workspace: flag(
      "workspace",
      "Id of the workspace (default: the account's default workspace)",
      WorkspaceId,
      "be a UUID"
    ).pipe(Flag.optional),
    providers: Flag.String("provider").pipe(
      Flag.withDescription("Providers of the model, in order and separated by commas"),
      Flag.mapEffect((list) => Effect.forEach(list.split(","), parseProvider)),
      Flag.mapEffect(parse(Providers, "--provider must name each provider once."))
    ),
    model: flag("model", "Model slug of the request", routingFields.model, "have 1 to 255 characters"),
    api_key_hash: flag(
      "api-key-hash",
      "SHA-256 of the caller's API key",
      ApiKeyHash,
      "be 64 lowercase hexadecimal characters"
    ).pipe(Flag.optional),
    user_id: optionalText("user", "The caller's user id"),
    host: Flag.Literals("host", regions).pipe(Flag.withDescription("Regional host of the request"), Flag.optional),
    requires_zdr: toggle("zdr", "The request requires zero data retention"),
    kind: Flag.Literals("kind", EndpointKind.literals).pipe(
      Flag.withDescription("Kind of the endpoints (default: standard)"),
      Flag.withDefault("standard" as const)
    ),
    region: Flag.Literals("endpoint-region", regions).pipe(
      Flag.withDescription("Recorded region of the endpoints"),
      Flag.optional
    ),
    zdr: toggle("endpoint-zdr", "The endpoints retain nothing"),
    unshared: toggle("no-shared", "The gateway has no capacity of its own there"),
    providerFirst: toggle("provider-first", "Try providers one by one, shared capacity included")
  },
  Effect.fnUntraced(function* ({ account, workspace, ...request }) {
    const endpoint = {
      kind: request.kind,
      region: Option.getOrNull(request.region),
      zdr: request.zdr,
      shared: !request.unshared
    }
    const withExplanations = CommandLayers.asOperatorWith(Explanations, CommandLayers.explanations, account)
    const { explanation, verifies } = yield* withExplanations(({ explain, verifies }) =>
      Effect.map(
        explain({
          ...(Option.isSome(workspace) ? { workspace_id: workspace.value } : {}),
          model: request.model,
          api_key_hash: Option.getOrNull(request.api_key_hash),
          user_id: Option.getOrNull(request.user_id),
          host: Option.getOrElse(request.host, () => "global" as const),
          requires_zdr: request.requires_zdr,
          targets: request.providers.map((provider) => ({ provider, endpoint })),
          strategy: request.providerFirst ? "provider_first" : "byok_first"
        }),
        (explanation) => ({ explanation, verifies })
      )
    ).pipe(
      Effect.catchTag("InvalidParams", (refusal): Effect.Effect<never, NotKnown | CommandFailed> =>
        refusal.error.metadata.issues.some(({ path }) => path[0] === "workspace_id")
          ? Effect.fail(new NotKnown({ kind: "workspace" }))
          : refusedAs("Nothing was explained")(refusal)
      )
    )
    const text = [...explanationLines(explanation), ...(verifies ? [] : [unverified])].join("\n")
    yield* printJsonOr({ ...encode(explanation), seals_verified: verifies }, text)
  })
).pipe(Command.withDescription("Explain which credentials serve a request, and why the others do not"))
