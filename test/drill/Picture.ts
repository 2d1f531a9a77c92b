import { barChart } from "../bench/barChart.ts"

interface Drawn {
  readonly id: string
  readonly fault: string
  readonly verdict: string
  readonly acked: number
  readonly lost: number
  readonly longestGap: number
}

const maxName = 74

/** Keeps what tells variants apart, which is said last. */
const shortened = (name: string) => {
  if (name.length <= maxName) return name
  const [end = ""] = /, [^,]{1,20}$/.exec(name) ?? []
  return `${name.slice(0, maxName - 1 - end.length)}…${end}`
}

/** The longest time without an acknowledgement in each fault, and how many acknowledged credentials were lost. */
export const pictureOf = (results: ReadonlyArray<Drawn>): string =>
  barChart({
    title: "Longest gap between two acknowledged creates during each fault, in milliseconds",
    series: [
      { name: "fault: nothing acknowledged may be lost", tone: "service" },
      { name: "control: must lose, or the drill would see nothing", tone: "control" }
    ],
    columns: 1,
    nameWidth: 480,
    textWidth: 150,
    panels: [
      {
        title: "",
        groups: results
          .filter(({ verdict }) => verdict !== "skipped")
          .map(({ acked, fault, id, longestGap, lost }) => ({
            name: shortened(`${id}: ${fault}`),
            bars: [
              {
                series: id === "control" ? 1 : 0,
                value: longestGap,
                text: `${longestGap} ms, ${lost} of ${acked} lost`
              }
            ]
          }))
      }
    ]
  })
