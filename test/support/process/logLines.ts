import { Logger } from "effect"

/** Takes the place of the loggers, and adds a line for each entry: its level and what it says. */
export const logLines = (lines: Array<string>) =>
  Logger.layer([Logger.make(({ logLevel, message }) => void lines.push(`${logLevel} ${String(message)}`))])
