import { Console, Effect } from "effect"
import { CliOutput } from "effect/cli"
import { writeOut } from "./writeOut.ts"

const formatter = CliOutput.defaultFormatter({ colors: false })

/** Leaves out anything long enough to be a key or a hash. */
const withoutSecrets = (text: string) => text.replace(/[^\s"'`]{24,}/g, "…")

/** A presenter cannot fail, so output that cannot be written is a defect. */
const show = (text: string) => Effect.orDie(Effect.asVoid(writeOut(`${text}\n`)))

/** Requested help goes to standard output; help after wrong usage goes to standard error, with the errors. */
export const layer = CliOutput.layerPresenter({
  present: (event) => {
    switch (event._tag) {
      case "Help": {
        const text = formatter.formatHelpDoc(event.helpDoc)
        return event.reason === "Requested" ? show(text) : Console.error(text)
      }
      case "InvalidInvocation": {
        const errors = withoutSecrets(formatter.formatErrors(event.errors))
        return Console.error(`${formatter.formatHelpDoc(event.helpDoc)}\n${errors}`)
      }
      case "Version":
        return show(formatter.formatVersion(event.name, event.version))
    }
  }
})
