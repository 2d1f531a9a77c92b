import type { RewrapProgress } from "../service/Rotation.ts"
import type { ProgressView } from "./progressOn.ts"

const line = ({ failed, rewrapped, total }: RewrapProgress) =>
  `rewrapped ${rewrapped} of ${total} credentials, ${failed} failed`

/** The progress of a rewrap. */
export const rewrapView: ProgressView<RewrapProgress> = {
  line,
  part: ({ failed, rewrapped, total }) => (rewrapped + failed) / Math.max(1, total),
  longest: (progress) => line({ ...progress, rewrapped: progress.total })
}
