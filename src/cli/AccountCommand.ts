import { Effect } from "effect"
import { Command } from "effect/cli"
import { AccountId } from "../domain/Identifiers.ts"
import type { Account, ErasureStep } from "../port/AccountRepository.ts"
import { Accounts } from "../service/accounts/Accounts.ts"
import * as CommandLayers from "../wiring/CommandLayers.ts"
import { argument, confirmation, name } from "./Arguments.ts"
import { makeProgress, thenPrint, printPages } from "./Output.ts"

const issueCommand = (account_id: string) => `byok api-key issue --account ${account_id} --name N --management`

const create = Command.make("create", { name }, ({ name }) =>
  CommandLayers.withAccounts((accounts) => accounts.createAccount(name)).pipe(
    thenPrint(
      ({ account_id }) => `account ${account_id} was created, and \`${issueCommand(account_id)}\` issues another key`
    )
  )
).pipe(Command.withDescription("Create an account with its default workspace and a management key, shown once"))

const list = Command.make("list", {}, () =>
  CommandLayers.withAccounts(({ listAccounts }) =>
    printPages(
      "accounts",
      (last?: Account) => listAccounts(last?.account_id),
      "There is no account: `byok account create --name N` creates one."
    )
  )
).pipe(Command.withDescription("List all accounts"))

type Progress = Omit<ErasureStep, "done">

const erasureLine = ({ credentials, idempotency_records }: Progress) =>
  `deleted ${credentials} credentials, ${idempotency_records} idempotency records`

const withErasure = CommandLayers.asOperatorWith(Accounts, CommandLayers.erasure)

const remove = Command.make(
  "delete",
  {
    id: argument("ID", "Id of the account", AccountId, "be a UUID"),
    yes: confirmation("the account is deleted for good, with its keys, workspaces and credentials")
  },
  ({ id }) =>
    Effect.flatMap(makeProgress(erasureLine), ({ end, report }) =>
      withErasure((accounts) => Effect.ensuring(accounts.deleteAccount(id, report), end))
    ).pipe(thenPrint(() => "the account is deleted"))
).pipe(Command.withDescription("Delete an account with everything in it, for good; run it again if it was interrupted"))

export const accountCommand = Command.make("account").pipe(
  Command.withDescription("Accounts"),
  Command.withSubcommands([create, list, remove])
)
