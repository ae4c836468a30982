//! The answer: a verdict, why, and what it rests on.

/// Whether a recorded process still lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Proven alive.
    Alive,
    /// Proven gone; the only final answer.
    Gone,
    /// Not knowable from here.
    Unknown,
}

/// Defines an enum whose members have a stable slug.
macro_rules! slugs {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $member:ident = $slug:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$doc])* $member,)+ }

        impl $name {
            /// Every member, in the order of the decision table.
            pub const ALL: &[Self] = &[$(Self::$member,)+];

            /// The stable name: a promise, unlike any message.
            #[must_use]
            pub const fn slug(self) -> &'static str {
                match self { $(Self::$member => $slug,)+ }
            }
        }
    };
}

slugs! {
    /// Why a verdict was given.
    #[non_exhaustive]
    Reason {
        /// The record cannot be read; `detail` says what is wrong with it.
        Malformed = "malformed",
        /// The record has a schema number that this version does not know.
        Version = "version",
        /// The record names nobody.
        NoIdentity = "no_identity",
        /// Written on another operating system.
        OtherOs = "other_os",
        /// Written on another host, by its host id; never by its host name.
        OtherHost = "other_host",
        /// One side has no boot id.
        NoBootId = "no_boot_id",
        /// Another boot id: a reboot, or another machine. Nobody can tell the two apart.
        OtherBoot = "other_boot",
        /// Another boot id on a host whose id the operator has declared unique.
        Rebooted = "rebooted",
        /// It is the asking process itself.
        Itself = "self",
        /// One side has no pid namespace.
        NoPidNamespace = "no_pid_namespace",
        /// The namespace's number has been given to another namespace, so all of its processes have ended.
        NamespaceGone = "namespace_gone",
        /// Another namespace, but the process could be opened by its unique id, and runs.
        HandleOpens = "handle_opens",
        /// Its unique id is unknown to the namespace that sees every process.
        HandleStale = "handle_stale_seen_from_initial_namespace",
        /// Another namespace, and no way to look into it.
        OtherPidNamespace = "other_pid_namespace",
        /// The kernel knows no process of that number.
        NoSuchPid = "no_such_pid",
        /// The number now belongs to a thread of another process.
        PidIsNowAThread = "pid_is_now_a_thread",
        /// Out of file descriptors or memory.
        NoFds = "no_fds",
        /// Another process has the number now.
        PidReused = "pid_reused",
        /// The very process runs: same never-reused id.
        SameUniqueId = "same_unique_id",
        /// The very process has ended, reaped or not.
        Exited = "exited",
        /// The system answered with an error that proves nothing.
        ProbeFailed = "probe_failed",
        /// The record has no start time, and nothing better was at hand.
        NoStartTime = "no_start_time",
        /// /proc is absent, or shows another pid namespace.
        ForeignOrMissingProc = "foreign_or_missing_proc",
        /// Our own time namespace's offset cannot be known.
        TimeNamespace = "time_namespace",
        /// The system does not show us the process, yet the kernel does not deny it.
        Hidden = "hidden",
        /// A process of that number and start time runs (10 ms resolution on Linux).
        SameStartTime = "same_start_time",
        /// Its main thread has exited, others run.
        LeaderExited = "leader_exited",
        /// Nothing is known about this platform.
        UnsupportedPlatform = "unsupported_platform",
    }
}

slugs! {
    /// What a verdict rests on.
    Evidence {
        /// The record's own fields.
        Record = "record",
        /// A pidfs file handle, across pid namespaces.
        Handle = "handle",
        /// A pidfd and its never-reused inode.
        Pidfs = "pidfs",
        /// A pidfd, with the start time where processes must be told apart.
        Pidfd = "pidfd",
        /// /proc/PID/stat alone.
        Proc = "proc",
        /// The kernel's word about a number, with the never-reused id of who has it (macOS).
        ProcInfo = "proc_info",
        /// The system's table of processes.
        ProcessTable = "process_table",
        /// A number that the kernel does not know.
        Getpgid = "getpgid",
        /// A handle of the process, and the never-reused number that the kernel gives it (Windows).
        UniqueId = "unique_id",
        /// A handle of the process, with the time of its creation where processes must be told apart (Windows).
        ProcessHandle = "process_handle",
        /// Nothing could be asked.
        None = "none",
    }
}

/// A verdict with its reason. Alive and unknown are snapshots; gone is final.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Judgement {
    /// The answer.
    pub verdict: Verdict,
    /// Why.
    pub reason: Reason,
    /// What it rests on.
    pub evidence: Evidence,
    /// For people; often empty. Boxed, so that the common answer allocates nothing and stays small.
    pub detail: Option<Box<str>>,
}

impl Judgement {
    /// Alive, because.
    #[must_use]
    pub const fn alive(reason: Reason, evidence: Evidence) -> Self {
        Self { verdict: Verdict::Alive, reason, evidence, detail: None }
    }

    /// Gone, because.
    #[must_use]
    pub const fn gone(reason: Reason, evidence: Evidence) -> Self {
        Self { verdict: Verdict::Gone, reason, evidence, detail: None }
    }

    /// Unknown, because.
    #[must_use]
    pub const fn unknown(reason: Reason, evidence: Evidence) -> Self {
        Self { verdict: Verdict::Unknown, reason, evidence, detail: None }
    }

    /// The same, with a word for people.
    #[must_use]
    pub fn with_detail(mut self, detail: impl Into<Box<str>>) -> Self {
        self.detail = Some(detail.into());
        self
    }
}
