import { Effect, Option, Record, Redacted, Result } from "effect"
import { Command, Flag } from "effect/cli"
import { CredentialId, LinkId } from "../domain/Identifiers.ts"
import { decodeNewLink, Purpose } from "../domain/Link.ts"
import { Links } from "../service/links/Links.ts"
import * as CommandLayers from "../wiring/CommandLayers.ts"
import { account, argument, flag, optionalText, provider, workspace } from "./Arguments.ts"
import { thenPrint, printList, refusedAs } from "./Output.ts"

const withLinks = CommandLayers.asOperatorWith(Links, CommandLayers.links)

const create = Command.make(
  "create",
  {
    account,
    purpose: Flag.Literals("purpose", Purpose.literals).pipe(Flag.withDescription("What the link allows")),
    workspace_id: workspace.pipe(Flag.optional),
    provider: provider.pipe(Flag.optional),
    credential_id: flag("credential", "Id of the credential to replace", CredentialId, "be a UUID").pipe(Flag.optional),
    return_url: optionalText("return-url", "Where the page leads afterwards"),
    expires_in: Flag.Int("expires-in").pipe(Flag.withDescription("Seconds, at most a day"), Flag.withDefault(3600))
  },
  Effect.fnUntraced(function* ({ account, ...flags }) {
    // A flag that was not set is left out of the request.
    const request = Record.filterMap(flags, (value: unknown) =>
      Option.isOption(value) ? Result.fromOption(value, () => "left out") : Result.succeed(value)
    )
    yield* decodeNewLink(request).pipe(
      Effect.flatMap((link) => withLinks(({ create }) => create(account, link))),
      Effect.catchTag("InvalidParams", refusedAs("No link was made")),
      thenPrint(
        ({ link_id, url }) =>
          `a link to ${new URL(Redacted.value(url)).origin} was made (PUBLIC_URL changes that address), and \`byok link revoke ${link_id} --account ${account}\` revokes it`
      )
    )
  })
).pipe(Command.withDescription("Make a link with which the owner of a key adds, replaces or manages it in a browser"))

const list = Command.make("list", { account }, ({ account }) =>
  withLinks(({ list }) => list(account)).pipe(
    Effect.flatMap((links) =>
      printList(
        "links",
        links.map(({ created_at, credential_id, expires_at, link_id, provider, purpose, workspace_id }) => ({
          link_id,
          purpose,
          workspace_id,
          provider,
          credential_id,
          created_at,
          expires_at
        }))
      )
    )
  )
).pipe(Command.withDescription("List the links of an account that are open"))

const id = argument("ID", "Id of the link", LinkId, "be a UUID")

const revoke = Command.make("revoke", { id, account }, ({ account, id }) =>
  withLinks(({ revoke }) => revoke(account, id)).pipe(thenPrint(() => "the link is revoked"))
).pipe(Command.withDescription("Revoke a link; its next request is refused"))

export const linkCommand = Command.make("link").pipe(
  Command.withDescription("Links for the owners of keys"),
  Command.withSubcommands([create, list, revoke])
)
