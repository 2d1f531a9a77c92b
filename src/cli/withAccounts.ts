import { Effect } from "effect"
import { Accounts } from "../service/Accounts.ts"
import * as Administration from "../wiring/Administration.ts"
import { asOperator } from "./asOperator.ts"

/** Runs an operation on accounts against the database of the settings. */
export const withAccounts = <A, E, R>(operation: (accounts: Accounts["Service"]) => Effect.Effect<A, E, R>) =>
  asOperator(Administration.accounts)(Effect.flatMap(Accounts, operation))
