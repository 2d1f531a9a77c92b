/** The samples of a text in the format of Prometheus, by name and labels as they are written. */
export const samplesIn = (text: string): ReadonlyMap<string, number> =>
  new Map(
    text
      .split("\n")
      .filter((line) => line !== "" && !line.startsWith("#"))
      .map((line) => {
        const end = line.lastIndexOf(" ")
        return [line.slice(0, end), Number(line.slice(end + 1))]
      })
  )

/** The sum of the samples of a name that have these labels, whatever others they have; none if there is no such sample. */
export const sumIn = (
  samples: ReadonlyMap<string, number>,
  name: string,
  labels: Readonly<Record<string, string>> = {}
): number | undefined => {
  const wanted = Object.entries(labels).map(([label, value]) => `${label}="${value}"`)
  const found = Array.from(samples).filter(
    ([sample]) => sample.replace(/\{.*/, "") === name && wanted.every((label) => sample.includes(label))
  )
  return found.length === 0 ? undefined : found.reduce((sum, [, value]) => sum + value, 0)
}
