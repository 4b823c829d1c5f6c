// The parts of internal/view that the pages draw, as the server sends them. Written by hack/viewts.

export interface List<T> {
  items: T[];
}

export interface Cgroups {
  namespace: string;
  name: string;
  uid: string;
  node: string;
  mode: string;
  cgroup: string;
  read: string;
  groups: Cgroup[];
  notes?: string[];
}

export interface Configuration {
  settings: Setting[];
  gates: Gate[];
}

export interface Evicted {
  pod: string;
  time: string;
  by: string;
  why?: string;
}

export interface Evictions {
  apiVersion: string;
  kind: string;
  jobs: Eviction[];
  limits: LimitUse[];
  movable: number;
  kept: KeptPod[];
  round?: Round;
}

export interface Gang {
  name: string;
  waitTime: number;
  createTime: string;
  mode: string;
  gangMatchPolicy: string;
  minRequiredNumber: number;
  totalChildrenNum: number;
  gangGroup: string[];
  children: string[];
  pendingChildren: string[];
  waitingForBindChildren: string[];
  boundChildren: string[];
  onceResourceSatisfied: boolean;
  scheduleCycleValid: boolean;
  scheduleCycle: number;
  childrenScheduleRoundMap: Record<string, number>;
  gangFrom: string;
  hasGangInit: boolean;
  rule?: string;
  state: string;
  reason?: string;
  message?: string;
  rootCausePod?: string;
  degraded?: boolean;
  phase?: string;
  deadline?: string;
  network?: string[];
  domains?: Domains;
  lastPlan?: Plan;
  held?: Record<string, string>;
  hold?: Hold;
}

export interface GPULoad {
  node: string;
  mode: string;
  model: string;
  isolation: string;
  gpus: number;
  usedPercent: number;
  degraded?: number;
  free: number;
  inParts: number;
  shared: number;
  freeSharesPercent: number;
  fit: Record<string, number>;
  stranded: OccupancyStranded[];
  namespaces?: OccupancyNamespaceUse[];
  health?: HealthHealth;
}

export interface Load {
  node: string;
  allocatable: string;
  requested: string;
  pods: number;
  lse: number;
  lsr: number;
  kubelet: number;
  ls: string;
  be: string;
  sharedPool: number;
  free: number;
  largestFit: number;
  largestOnOneNUMANode: number;
  fragmentedPercent: number;
  quotas?: Record<string, string>;
  gangs?: Record<string, number>;
  labels?: Record<string, string>;
  fault?: string;
  stranded?: string;
  health?: HealthHealth;
}

export interface ModeOfNode {
  node: string;
  mode: string;
  from: Origin;
  wish?: string;
  takeover?: Takeover;
  kubeletPolicy: string;
}

export interface Node {
  node: string;
  arch?: string;
  cpus: number;
  cores: number;
  threadsPerCore: number;
  numaNodes: number;
  kubeletPolicy: string;
  mode: Mode;
  kubelet: Kubelet;
  policies: Policies;
  sharedPool: string;
  beSharedPool: string;
  allocatable: string;
  fault?: string;
  sockets: Socket[];
  pods: Holder[];
  devices?: NodeDevices;
  sharedPods: number;
  bePods: number;
  sharedMemory?: string;
  problems: Problem[];
  health?: HealthHealth;
}

export interface NodeUse {
  node: string;
  cpu: AmountUse;
  memory: AmountUse;
  memoryByClass?: Record<string, string>;
  suppressed?: string;
  reportSeconds: number;
  health?: HealthHealth;
}

export interface Past {
  file: string;
  earlier?: string;
  from?: string;
  to?: string;
  nodes: PastNode[];
  pods: PastPod[];
  refused: PastRefusal[];
}

export interface PendingGroup {
  rootCause: string;
  class: string;
  count: number;
  pods: string[];
  oldest: string;
  example: string;
  message: string;
}

export interface Pod {
  pod: string;
  uid?: string;
  state: string;
  since?: string;
  scheduler?: string;
  qos?: string;
  gang?: MadeGang;
  asked?: string;
  queue?: Queue;
  rootCause?: WhyWire;
  quota?: QuotaLimit;
  nodes: number;
  obstacles: WhyWire[] | null;
  minimalSets: Set[] | null;
  candidates: Candidate[] | null;
  placement?: Placement;
  rejection?: Rejection;
  decision?: Decision;
  expected?: ExpectedStart;
  place?: string;
  hold?: Hold;
  heldBack?: HeldBack;
  fixes?: Fix[];
  search?: FixSearch;
  data: Data;
  notes?: string[];
}

export interface Quota {
  name: string;
  parentName: string;
  isParent: boolean;
  tree: string;
  path: string[];
  allowLentResource: boolean;
  max: Record<string, string>;
  min: Record<string, string>;
  autoScaleMin: Record<string, string>;
  sharedWeight: Record<string, string>;
  runtime: Record<string, string>;
  exactShare?: Record<string, string>;
  used: Record<string, string>;
  lent: Record<string, string>;
  borrowed: Record<string, string>;
  request: Record<string, string>;
  childRequest: Record<string, string>;
  nonPreemptibleRequest: Record<string, string>;
  nonPreemptibleUsed: Record<string, string>;
  allocated: Record<string, string>;
  guaranteed: Record<string, string>;
  trace?: Record<string, QuotaTrace>;
  podCache?: Record<string, QuotaPod>;
  podsHidden?: number;
  problems?: string[];
}

export interface Reservation {
  name: string;
  phase: string;
  createTime?: string;
  node?: string;
  ttl?: string;
  expires?: string;
  cpuset?: string;
  devices: Record<string, Device[]> | null;
  allocatable: Record<string, string>;
  allocated: Record<string, string>;
  left: Record<string, string>;
  allocatePolicy: string;
  allocateOnce: boolean;
  unschedulable?: boolean;
  owners: string[];
  currentOwners: string[];
  message?: string;
}

export interface Status {
  apiVersion: string;
  kind: string;
  subject: string;
  findings: Finding[];
  components: Component[];
  schedulerVersion?: string;
  reports: Reports[];
  endpoints?: Record<string, string[]>;
}

export interface WhatIfAnswer {
  snapshotGeneration: number;
  placements: WhatIfPlacement[];
  unschedulable: Pod[];
  victims: Victim[];
  victimsHidden?: number;
  capacity?: Capacity;
  forecast?: Forecast;
  room?: RoomPlan;
}

export interface Cgroup {
  container?: string;
  path: string;
  gone?: boolean;
  values?: CgroupValue[];
  drift?: Drift;
}

export interface Setting {
  field: string;
  value: string;
  origin: string;
}

export interface Gate {
  name: string;
  enabled: boolean;
  default: boolean;
  stage: string;
  origin: string;
}

export interface Eviction {
  name: string;
  pod: string;
  successor?: string;
  from?: string;
  to?: string;
  phase: string;
  createTime?: string;
  evicted?: string;
  plugin?: string;
  wish?: string;
  reason?: string;
}

export interface LimitUse {
  code: string;
  subject: string;
  have: number;
  limit: number;
  window?: string;
}

export interface KeptPod {
  pod: string;
  node: string;
  reasons: KeptReason[];
}

export interface Round {
  time: string;
  accepted: number;
  refused: RefusedMove[];
}

export interface Domains {
  of: string;
  many: number;
  tried: number;
  best?: string;
}

export interface Plan {
  at: string;
  gang?: string;
  placed: number;
  needed: number;
}

export interface Hold {
  nodes: string[];
  since: string;
  start?: string;
  users: string;
}

export interface OccupancyStranded {
  cause: string;
  gpus: number;
}

export interface OccupancyNamespaceUse {
  namespace: string;
  usedPercent: number;
}

export interface HealthHealth {
  closed?: string;
  findings?: HealthFinding[];
}

export interface Origin {
  source: string;
  key?: string;
}

export interface Takeover {
  phase: number;
  since?: string;
  remainingPods: number;
}

export interface Mode {
  mode: string;
  from: Origin;
  wish?: string;
  takeover?: Takeover;
}

export interface Kubelet {
  version?: string;
  cpuManager: Manager;
  memoryManager: Manager;
  topologyManager: Manager;
  model?: string;
  fault?: string;
  assumed?: string;
}

export interface Policies {
  cpuBind?: string;
  numaAllocate: string;
  numaTopology: string;
  from: Record<string, Origin> | null;
}

export interface Socket {
  socket: number;
  numaNodes: NUMA[];
}

export interface Holder {
  namespace: string;
  name: string;
  qos: string;
  cpuset?: string;
  cpuExclusivePolicy?: string;
  numaNodes: number[] | null;
  pool?: string;
  interruptsPerSecond?: QuietRate;
}

export interface NodeDevices {
  mode: string;
  list: DeviceOnNode[];
  links: DeviceLink[];
  linkKind?: string;
  unknownHolders?: number;
}

export interface Problem {
  pod?: string;
  text: string;
}

export interface AmountUse {
  allocatable?: string;
  requested: string;
  used?: string;
  p95?: string;
  usedPercent: number;
  reclaimable?: string;
  batch?: string;
}

export interface PastNode {
  node: string;
  milliCPU: number;
  from: string;
  to?: string;
}

export interface PastPod {
  pod: string;
  node: string;
  gang?: string;
  milliCPU: number;
  from: string;
  to?: string;
  feasible?: number;
  of?: number;
  why?: string;
}

export interface PastRefusal {
  pod: string;
  time: string;
  why: string;
  nominated?: string;
}

export interface MadeGang {
  name: string;
  rule: string;
}

export interface Queue {
  place?: string;
  position?: number;
  length?: number;
  attempts: number;
  lastAttempt?: string;
  nextTry?: string;
  wakesOn?: string[];
}

export interface WhyWire {
  code: string;
  class: string;
  plugin?: string;
  phase?: string;
  nodes?: number;
  example?: string;
  where?: string;
  params?: Record<string, unknown>;
  message: string;
  do?: string;
}

export interface QuotaLimit {
  quota: string;
  path: string[];
  limitKind: string;
  shortages: QuotaShortage[];
}

export interface Set {
  codes: string[];
  nodes: number;
  missing?: Record<string, string>;
}

export interface Candidate {
  node: string;
  count: number;
  reasons: Refusal[];
  devices?: DeviceFit;
  closest?: string;
}

export interface Placement {
  node: string;
  cpuset?: string;
  pool?: string;
  poolCPUs?: string;
  numa: Part[] | null;
  overcommitted?: string[];
  devices?: Record<string, Device[]>;
  deviceChoice?: DeviceChoice;
  claims?: HeldClaim[];
  isolation?: Isolation;
  predicted?: Record<string, Container>;
  actual?: Record<string, Container>;
  differs?: string[];
  assumed?: string[];
}

export interface Rejection {
  node: string;
  reason: string;
  message?: string;
  backoffSeconds?: number;
}

export interface Decision {
  pod: string;
  uid?: string;
  profile?: string;
  time: string;
  node: string;
  feasible: number;
  of: number;
  only?: string;
  scores: Score[] | null;
}

export interface ExpectedStart {
  state: string;
  earliest?: string;
  latest?: string;
  after?: string[];
  learned?: boolean;
}

export interface HeldBack {
  node: string;
  for?: string;
  until?: string;
  ends?: string;
  noBackfill?: boolean;
}

export interface Fix {
  kind: string;
  message: string;
  changes?: Change[];
  node?: string;
  verifiedAt?: string;
  moves?: RoomMove[];
}

export interface FixSearch {
  runs: number;
  exhausted?: boolean;
  note?: string;
}

export interface Data {
  generation?: number;
  ages?: Record<string, number>;
  source: string;
}

export interface QuotaTrace {
  total: number;
  effectiveMin: number;
  limited: number;
  base: number;
  pool: number;
  rounds: QuotaRound[];
}

export interface QuotaPod {
  isAssigned: boolean;
  resource: Record<string, string>;
}

export interface Device {
  minor: number;
  id?: string;
  resources: Record<string, string>;
  degraded?: boolean;
}

export interface Finding {
  check: string;
  status: string;
  found: string;
  where?: string;
  why?: string;
  remedy?: string;
}

export interface Component {
  name: string;
  desired: number;
  ready: number;
  stuck?: string;
  versions: string[];
  pods?: Record<string, number>;
  leader?: string;
  leaderVersion?: string;
  leaderSince?: string;
  leaseEnds?: string;
}

export interface Reports {
  kind: string;
  nodes: number;
  of: number;
  oldest?: string;
  oldestNode?: string;
}

export interface WhatIfPlacement {
  pod: string;
  node: string;
  resourceStatus?: { cpuset?: string };
  devices?: Record<string, Device[]>;
}

export interface Victim {
  pod: string;
  node: string;
  for: string;
}

export interface Capacity {
  pods: number;
  gang?: GangCapacity;
  room: number;
  added?: number;
  nodes: number;
  groups: CapacityGroup[];
  limits: Refusal[];
  quota?: QuotaCapacity;
  admission?: AdmissionCapacity;
  bound?: string;
  notes?: string[];
}

export interface Forecast {
  at: string;
  queue: WaitingUnit[];
  bound?: string;
  overdue?: Overdue[];
  hidden?: number;
  notes?: string[];
}

export interface RoomPlan {
  found: boolean;
  moves: RoomMove[];
  maxMoves: number;
  proven: boolean;
  looked: number;
  bound?: string;
}

export interface CgroupValue {
  file: string;
  want?: string;
  got: string;
  effective?: string;
  state: string;
  cause?: string;
  atCreation?: boolean;
  error?: string;
}

export interface Drift {
  file: string;
  want: string;
  got: string;
  seen: string;
  repaired?: string;
}

export interface KeptReason {
  code: string;
  message: string;
  final: boolean;
}

export interface RefusedMove {
  pod: string;
  node: string;
  reasons: KeptReason[];
  plugin: string;
  wish: string;
}

export interface HealthFinding {
  cause: string;
  text: string;
  message?: string;
  since?: string;
}

export interface Manager {
  policy: string;
  scope?: string;
  options?: Record<string, string>;
  reserved?: string;
  from: Origin;
}

export interface NUMA {
  node: number;
  memory?: string;
  memoryAllocatable?: string;
  memoryFree?: string;
  memoryBy?: MemoryHolder[];
  hugepages?: Record<string, Memory>;
  memoryGroup?: number[];
  distances: number[];
  sharedPool: string;
  beSharedPool: string;
  isolated?: string;
  free: number;
  cores: Core[];
  l3Use?: CacheUse[];
}

export interface QuietRate {
  devices: number;
  kernel: number;
  busiest?: string;
}

export interface DeviceOnNode {
  type: string;
  minor: number;
  id: string;
  model?: string;
  healthy: boolean;
  degraded?: boolean;
  sliced?: boolean;
  numaNode: number;
  pcie?: string;
  busID?: string;
  total: Record<string, string>;
  free: Record<string, string>;
  usedPercent: number;
  holders: DeviceHolder[];
}

export interface DeviceLink {
  type: string;
  ids: string[];
  lanes: number;
}

export interface QuotaShortage {
  dimension: string;
  limit: string;
  used: string;
  request: string;
  borrowers: Borrower[];
  borrowersHidden?: number;
  outside?: Record<string, string>;
}

export interface Refusal {
  code: string;
  class: string;
  plugin?: string;
  phase?: string;
  nodes?: number;
  example?: string;
  where?: string;
  params?: Record<string, unknown>;
  message: string;
  do?: string;
  haveNeed?: string;
}

export interface DeviceFit {
  set?: DeviceSet;
  type?: string;
  asked?: number;
  need?: string;
  fit: number;
  whole: number;
  best?: Record<string, string>;
  miss?: string;
  holders?: HoldingPod[];
  holdersElsewhere?: number;
}

export interface Part {
  node: number;
  socket: number;
  cpuset: string;
  cores?: CorePart[];
}

export interface DeviceChoice {
  sets: DeviceSet[];
  more?: boolean;
  decided?: string;
  approximate?: boolean;
}

export interface HeldClaim {
  name: string;
  devices: ClaimedDevice[];
}

export interface Isolation {
  strength: string;
  by?: string;
}

export interface Container {
  mask?: number[];
  preferred?: boolean;
  cpus?: string;
  memory?: Record<string, string>;
  hugepages?: Record<string, Record<string, string>>;
  devices?: Record<string, Devices>;
  uncertain?: boolean;
}

export interface Score {
  node: string;
  total: number;
  plugins: PluginScore[];
}

export interface Change {
  removePod?: string;
  addPod?: unknown;
  patchPod?: Patch;
  patchNode?: Patch;
  cordon?: string;
  addNode?: AddNode;
  setQuota?: unknown;
  scaleGang?: unknown;
}

export interface RoomMove {
  pod: string;
  uid: string;
  node: string;
  target: string;
  cost: number;
  priority: number;
  fall?: number;
  resourceStatus?: unknown;
  devices?: unknown;
}

export interface QuotaRound {
  pool: number;
  weights: number;
  got: number;
  returned: number;
}

export interface GangCapacity {
  members: number;
  fit: number;
}

export interface CapacityGroup {
  nodes: string[];
  fit: number;
  lacks?: Refusal;
}

export interface QuotaCapacity {
  name: string;
  pods: number;
  lacks: Refusal;
}

export interface AdmissionCapacity {
  pods: number;
  message: string;
}

export interface WaitingUnit {
  position: number;
  name: string;
  pods: string[];
  quotaPath?: string[];
  priority: number;
  since: string;
  waits?: WhyWire;
  runTime?: RunTime;
  start?: ExpectedStart;
  hold?: Hold;
  heldBack?: HeldBack;
}

export interface Overdue {
  pod: string;
  declared: string;
  ran: string;
}

export interface MemoryHolder {
  pod: string;
  memory: string;
}

export interface Memory {
  capacity?: string;
  allocatable?: string;
  free?: string;
}

export interface Core {
  core: number;
  l3: number;
  kind?: string;
  cpus: CPU[];
}

export interface CacheUse {
  l3: number;
  usedPercent: number;
}

export interface DeviceHolder {
  pod: string;
  resources: Record<string, string>;
  foreign?: boolean;
  claim?: boolean;
}

export interface Borrower {
  quota: string;
  used: string;
  min: string;
  borrowed: string;
}

export interface DeviceSet {
  devices: Record<string, Device[]>;
  keys: DeviceKey[];
  held?: boolean;
}

export interface HoldingPod {
  pod: string;
  devices: number;
  claim?: boolean;
}

export interface CorePart {
  core: number;
  cpuset: string;
  whole: boolean;
}

export interface ClaimedDevice {
  name: string;
  numaNodes?: number[];
}

export interface Devices {
  mask: number[];
  count: number;
  split?: Devices[];
  open?: boolean;
}

export interface PluginScore {
  name: string;
  score: number;
  normalized: number;
  weight: number;
  raw?: number;
}

export interface Patch {
  name: string;
  patch: unknown;
}

export interface AddNode {
  like: string;
  count?: number;
  machine?: Machine;
}

export interface RunTime {
  likely: string;
  late: string;
  source: string;
}

export interface CPU {
  cpu: number;
  state: string;
  pods?: string[];
  usedPercent?: number;
}

export interface DeviceKey {
  name: string;
  value: number;
  lessIsBetter?: boolean;
}

export interface Machine {
  node: unknown;
  topology?: unknown;
  device?: unknown;
}
