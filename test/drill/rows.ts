import * as BrokenNetwork from "./BrokenNetwork.ts"
import * as ChangedLeader from "./ChangedLeader.ts"
import * as FrozenStandby from "./FrozenStandby.ts"
import * as FullDisk from "./FullDisk.ts"
import * as KilledCoordinator from "./KilledCoordinator.ts"
import * as KilledService from "./KilledService.ts"
import * as KilledWorker from "./KilledWorker.ts"
import * as LockedTable from "./LockedTable.ts"
import * as MillionCredentials from "./MillionCredentials.ts"
import * as PromotedStandby from "./PromotedStandby.ts"
import * as RestartedPostgres from "./RestartedPostgres.ts"
import * as RestoredDump from "./RestoredDump.ts"
import * as StoppedService from "./StoppedService.ts"
import type { Row } from "./Row.ts"

/** Every row, in the order in which they run; a control follows its fault. */
export const rows: ReadonlyArray<Row> = [
  KilledService,
  StoppedService,
  RestartedPostgres,
  BrokenNetwork,
  LockedTable,
  FrozenStandby,
  PromotedStandby,
  ChangedLeader,
  FullDisk,
  MillionCredentials,
  RestoredDump,
  KilledWorker,
  KilledCoordinator
].flatMap(({ rows }) => rows)
