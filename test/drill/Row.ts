import type { Effect, Scope } from "effect"
import { type Ledger, newLedger } from "../support/database/AckChecker.ts"

/** The findings of a fault. */
export class Findings {
  readonly ledger: Ledger = newLedger()
  readonly figures: Array<string> = []
  readonly wrong: Array<string> = []
  lost = 0

  show(figure: string) {
    this.figures.push(figure)
  }

  expect(holds: boolean, otherwise: string) {
    if (!holds) this.wrong.push(otherwise)
  }

  /** Records the faults that the ack checker found. */
  judge(faults: ReadonlyArray<string>) {
    this.lost = lostIn(faults)
    this.wrong.push(...abridged(faults))
  }

  /** Requires lost credentials and no other fault, which shows that the checker works. */
  judgeControl(faults: ReadonlyArray<string>) {
    this.lost = lostIn(faults)
    this.expect(this.lost > 0, "the control has lost nothing")
    this.wrong.push(...abridged(faults.filter((fault) => !isLoss(fault))))
  }
}

/** A credential, an update or a deletion that is lost. */
const isLoss = (fault: string) => /^(lost|get answers otherwise|another key|deleted and there again): /.test(fault)

const lostIn = (faults: ReadonlyArray<string>) => faults.filter((fault) => fault.startsWith("lost: ")).length

const abridged = (faults: ReadonlyArray<string>) =>
  faults.length > 5 ? [...faults.slice(0, 5), `and ${faults.length - 5} more`] : faults

/** One fault, provoked and judged. */
export interface Row {
  /** The number in the table of faults, such as `R3`, or `control`. */
  readonly id: string
  readonly fault: string
  readonly run: (findings: Findings) => Effect.Effect<unknown, unknown, Scope.Scope>
}
