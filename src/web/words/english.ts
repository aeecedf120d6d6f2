/**
 * All words of the app in English, which is the language that has each text first. A text with
 * `{}` gets an element there, such as a name that keeps its own direction of writing; one with
 * other values is a function.
 */
import { englishFailures } from "./english-failures.ts";
import { pluralOf } from "./plural.ts";

const plural = pluralOf("en");

/** Whose deed it is, where a language changes its verbs. */
type Who = "you" | "they";

export const english = {
  // The page
  trial:
    "For trials: this page comes unencrypted, so others in this network could change it. No notifications, no installation.",
  newVersion: "A new version of Waypost is here.",
  loadIt: "Load it",
  opening: "Opening…",
  openingSlow:
    "This browser still holds what Waypost has stored. If it goes on, end the browser and open it again.",
  tryAgain: "Try again",
  hide: "Hide",
  close: "Close",
  cancel: "Cancel",
  save: "Save",
  back: "Back",
  conversationsOpenHere: "Conversations open here.",
  copied: "Copied.",
  noClipboard: "This browser does not let the page copy: select the text.",
  storageRefused:
    "This browser keeps nothing for this page, so Waypost can't work here. A private window, or a setting that blocks site data, may be why.",
  mayBeDeleted: "This browser may delete what is kept here. Make a backup.",
  unreadableMessage: "A message arrived that can't be opened on this device.",
  addressDiffers: "Your messages go to another address than this one. Do you want them here?",
  moveHere: "Receive here",
  backupOutdated: "Your last backup is from before your keys were replaced. Make a new one.",
  historyAwaited:
    "Open your other device: this one waits for your people and groups before it shows what is new.",
  goOnWithout: "Go on without them",
  keysReplaced:
    "Your keys were replaced elsewhere. Did you remove this device, or restore a backup? Otherwise somebody else is writing as you: warn your contacts over another channel.",
  deviceAdded: (device: string) => `A device was added: ${device}. If that wasn't you, remove it.`,
  storeFull: "This device is full: nothing new can be kept. Delete files or conversations.",
  clockWrong: (problem: string) => `The clock of this device is wrong: ${problem}`,
  replacedSince:
    "Your keys were replaced after this backup was made. Link this device from one of your others: the messages of the backup are here then.",
  language: "Language",
  languageOfBrowser: "As the browser has it",

  // Failures, by their codes. `unknownFailure` gets what the SDK says, in English, and the code.
  unknownFailure: (message: string, _code: string) => message,
  failures: englishFailures,

  // The first page
  onlyYou: "Messages that only you and those to whom you write can read.",
  invitesYou: "{} invites you to a conversation that only you two can read.",
  noNumber: "No phone number, no e-mail address: your keys are made here and stay here.",
  start: "Start",
  makingKeys: "Making your keys…",
  yourNameShown: "Your name, as others see it",
  optional: "Optional",
  invitationToServer: "Invitation to this server",
  onOtherDevice: "I use it on another device",
  haveBackup: "I have a backup",
  restore: "Restore",
  restoreOnlyIf:
    "Only when your other devices are lost: with one left, use it to link this one. A device that is left gets nothing more.",
  backupFile: "Backup file",
  itsPassphrase: "Its passphrase",
  lockedTitle: "Locked",
  lockedText: "Your keys and messages are sealed on this device.",
  unlock: "Unlock",
  unlocking: "Unlocking…",
  passphraseOrCode: "Passphrase, or the code that you printed",
  usePasskey: "Use the passkey",

  // The list of conversations
  conversations: "Conversations",
  connecting: "Connecting…",
  settings: "Settings",
  addSomebody: "Add somebody",
  search: "Search",
  searchAll: "Search people and messages",
  requests: "Requests",
  request: "Request",
  people: "People",
  deleteRequests: "Delete all requests",
  deleteRequestsAsk: "Delete all requests and what they say? Who sent them isn't told.",
  noConversations:
    "You have no conversations yet. Invite somebody by a link, or by a code that their phone scans.",
  inviteSomebody: "Invite somebody",
  foundMessages: "Found messages",
  messages: "Messages",
  noneFound: "No message with these words",
  searching: "Searching…",
  unread: "unread",
  notSentShort: "not sent",
  you: "You",
  somebody: "Somebody",
  somebodyNew: "Somebody new",
  unsigned: "Unsigned messages",
  group: "Group",
  fileSummary: (name: string) => `File: ${name}`,
  withoutName: "without a name",
  today: "Today",
  yesterday: "Yesterday",

  // A conversation
  conversationWith: (name: string) => `Conversation with ${name}`,
  notProven: "not proven",
  checkWho: "Check who this is",
  aboutGroup: "About this group",
  blockedText: "You have blocked this person.",
  unprovenText: "Nothing proves who wrote these. Do not believe them because of a name.",
  requestText: "You don't know this person yet. Once you accept, you can answer.",
  accept: "Accept",
  decline: "Decline",
  nameForThem: "What do you call them?",
  isWriting: "{} is writing…",
  newest: "Newest",
  saySomething: "Say something.",
  onlyPerson:
    "Only you and this person can read what you write here. The server carries it sealed.",
  onlyMembers: "Only the members can read what you write here. The server carries it sealed.",
  block: "Block",
  unblock: "Unblock",

  // A message
  unprovenMessage: "Nothing proves that this person wrote this.",
  edited: "edited",
  moreAbout: "More about this message",
  actions: "Actions",
  answer: "Answer",
  copy: "Copy",
  edit: "Edit",
  deleteHere: "Delete here",
  deleteForAll: "Delete for everybody",
  deleteForAllAsk: "Delete this message from the devices of all who have it? It can't come back.",
  wasDeleted: "This message was deleted.",
  messageDeleted: "Message deleted",
  changedMessage: "The changed message",
  quoteMissing: "A message that is not here",
  showAll: "Show all",
  file: "File",
  fileRemoved: (name: string) => `${name}: removed, because this device was full.`,
  coming: "Coming from your other device",
  loadFromOther: "Load from your other device",
  saveFile: (name: string, size: string) => `Save ${name}, ${size}`,
  sendingFile: (name: string) => `Sending ${name}`,
  pictureOf: (name: string) => `Picture: ${name}`,
  states: {
    waiting: "waits to be sent",
    uncertain: "may have arrived",
    failed: "not sent",
    sent: "sent",
    received: "arrived",
    read: "read",
  },
  readBy: (readers: number, all: number) => `read by ${readers} of ${all}`,
  notSent: "Not sent",
  mayHaveArrived: "May have arrived",
  sendAgain: "Send again",

  forwarded: "Forwarded",
  forward: "Forward",
  forwardTo: "Forward to",
  forwardedTo: (name: string) => `Forwarded to ${name}.`,

  // Reports
  report: "Report",
  reportTitle: "Report to the operator",
  reportText:
    "What you choose goes sealed to the person who runs this server, with proof of who wrote it. Its author is not told.",
  reportWhich: "Which messages?",
  reportNone: "Choose a message.",
  reportReason: "What happened? (optional)",
  reportBlocks: "Block this person, too",
  sendReport: "Send the report",
  reported: "The report goes to the operator.",
  noticeOfOperator: "From the operator of this server:",
  noticeSeen: "Seen",
  maintenance: "The server is being worked on: what you write is sent afterwards.",
  reportMessage: "A report to the operator",
  operatorName: "Operator of this server",
  operatorGoesTo: "It goes to:",
  operatorChanged:
    "This server now names another person who runs it. Ask first, over another channel: your report goes to the new one.",
  operatorAgreed: "I have asked: send it to the new one",
  operatorBelieved: "I have asked: believe the new one",
  operatorContact: "Contact the operator",
  operatorRules: "Rules of this server",

  whoHasIt: "Who has it",
  callsYou: "calls you",
  disappears: (time: string) => `disappears after ${time}`,
  play: "Play",
  playFile: (name: string) => `Play ${name}`,
  noPlaying: "This browser can't play this file. Save it and open it elsewhere.",

  // What is chosen in a conversation
  thisConversation: "This conversation",
  pin: "Pin it to the top",
  pinned: "pinned",
  mute: "Mute it: only who calls you by @ is heard",
  muted: "muted",
  archive: "Put it away until something comes",
  archived: "Put away",
  lasting: "Messages from now on",
  lastingByAdmin: (choice: string) => `Messages from now on: ${choice}. The admin chooses it.`,
  staysForGood: "stay",
  lastsFor: (time: string) => `disappear after ${time}`,
  setTimer: (time: string, _who: Who) => `set messages to disappear after ${time}`,
  endedTimer: (_who: Who) => "set messages to stay",
  timerText:
    "Each side removes them so long after they were sent, or read. Someone may still copy them.",

  // Voice messages
  record: "Record a voice message",
  recording: (time: string) => `Recording, ${time}`,
  stopRecording: "Stop recording",
  dropRecording: "Throw it away",
  voiceName: "Voice message",
  noRecording: "This browser can't record sound.",
  noMicrophone: "The browser does not let this page use the microphone.",

  // The line to write
  sendFile: "Send a file",
  messageTo: (name: string) => `Message to ${name}`,
  message: "Message",
  send: "Send",
  unreadFiles: (names: string) => `This can't be read and was not sent: ${names}`,
  tooLargeFiles: (names: string) => `Larger than 1 GB: ${names}`,
  filesToSend: "Files to send",
  dontSend: (name: string) => `Don't send ${name}`,
  dontAnswer: "Don't answer this message",
  membersToCall: "Members to call",

  // Inviting and writing
  inviteText:
    "Let them scan this code, or send them the link in any other way. Then they can write to you.",
  inviteCode: "Your invitation as a QR code",
  inviteLink: "Your invitation link",
  copyLink: "Copy link",
  whoComes: "Who opens the link",
  acceptsFirst: "is accepted: the first one, within a week",
  acceptsAll: "is accepted: everybody, within a week",
  acceptsNone: "has to ask first",
  write: "Write",
  writeTo: "Or write to a link, an address or a name",
  pasteHere: "Paste it here",
  scanCode: "Scan a code with the camera",
  camera: "Camera",
  makeGroup: "Make a group",
  ownInvitation: "This is your own invitation. Send it to somebody else.",
  writeToSomebody: "Write to somebody",
  openConversation: "Open conversation",
  nameForPerson: "What do you call this person?",

  // A person
  aboutPerson: "About this person",
  nameAsYou: "Name, as you call them",
  callThemselves: "They call themselves {}.",
  isItThem: "Is it really them?",
  keysProve:
    "This person's keys prove themselves: the server can't exchange them. What it can't prove is that they belong to the person you mean.",
  keysUnproven: "The server says which keys this person has, and nothing proves it.",
  copyAddress: "Copy address",
  deleteConversation: "Delete conversation",
  deleteConversationAsk: "Delete the whole conversation from this device?",
  askingServer: "Asking the server…",
  comparingText:
    "Look at these letters and digits together, by phone or side by side. If both of you see the same, no one stands between you.",
  keysDiffer:
    "The server shows other keys than before, and nothing explains it. Compare before you write.",
  numbersBefore: "Before, they were {}",
  isCompared: "You have compared them, and no key has changed since.",
  haveCompared: "We have compared them",
  comparedNoted: "Noted: you have compared them.",
  samePicture: "The same as a picture",

  // Groups
  newGroup: "New group",
  /** What somebody did, behind their name. */
  leftGroup: (_who: Who) => "left the group",
  madeGroup: (name: string, people: string, _who: Who) => `made the group “${name}” with ${people}`,
  changedGroup: (name: string, people: string, _who: Who) =>
    `changed the group to “${name}” with ${people}`,
  peopleCount: (count: number) => plural(count, { one: "# person", other: "# people" }),
  leaveGroup: "Leave the group",
  tookOverGroup: (_who: Who) => "took over the group",
  mustHandOver: "Before you can leave, make someone else the admin.",
  makeAdmin: "Make admin",
  makeAdminOf: (name: string) => `Make admin: ${name}`,
  makeAdminAsk:
    "Let this person decide who is in the group, in place of you, for good? You stay in it.",
  becomesAdmin: "{} becomes the admin as soon as their device and your other devices know.",
  secondAdmin:
    "The admin has also handed this group over to {}. You follow the first. Ask the others whom they follow.",
  leaveAsk: "Leave this group? You get no more messages from it.",
  whoIsIn: "Who is in it with you",
  withYou: (people: string) => `With you, ${people}`,
  admin: "admin",
  noneKnown: "No one you know yet. Add someone first.",
  makeTheGroup: "Make the group",
  nameOfGroup: "Name of the group",
  noLongerIn: "You are no longer in this group.",
  invitesToGroup: (people: string) =>
    `{} invites you to a group of ${people}. Once you accept, you can write there.`,

  // Settings
  blocked: "Blocked",
  about: "About",
  aboutText: (version: string) =>
    `Messages are sealed on this device and opened on the other. The server sees who writes to whom and when, not what. It also gives you this app: a server that lies could give you another one. Waypost ${version} is young and was not audited.`,
  yourAddress: "Your address: {}",
  usage: (used: string, all: string) => `${used} of ${all} are used on this device.`,
  backup: "Backup",
  backupText:
    "Your keys and messages are on this device only. With a backup and its passphrase you are the same person elsewhere, with people and messages as they are now.",
  saveBackup: "Save backup",
  sealing: "Sealing…",
  passphraseOf10: "Passphrase, 10 or more characters",
  notifications: "Notifications",
  notifyMe: "Notify me of new messages",
  noNotifications: "This browser shows no notifications.",
  notificationsOff: "Notifications are switched off for this page in the browser.",
  newMessage: "New message",
  hasWritten: "has written to you",
  profile: "Your profile",
  profileText: "Those to whom you write see it with your next message.",
  choosePicture: "Choose a picture",
  chooseOther: "Choose another picture",
  removeIt: "Remove it",
  yourName: "Your name",
  saveName: "Save name",
  isOpen: "People I know see when I have read their messages, and when I write",
  noPicture: "The browser can't show this file as a picture.",
  pictureTooLarge: "This picture can't be made small enough.",

  // Devices
  devices: "Devices",
  devicesText: "On each of them you are the same person, with the same conversations.",
  aDevice: "a device",
  browserOn: (browser: string, system: string) => `${browser} on ${system}`,
  aBrowser: "Browser",
  aComputer: "a computer",
  makingCode: "Making a code…",
  scanHere:
    "On your other device, open Settings, then “Add a device”, and scan this code or paste its text.",
  deviceCode: "The code of this device",
  copyCode: "Copy the code",
  deviceInvitationNeeded:
    "This server takes only people with an invitation. On your other device, open Settings, then “Add a device”, and open its link here, or paste it.",
  deviceInvitation: "The link that your other device shows",
  openOnNewDevice:
    "Open this link on the new device within 15 minutes, and show it to nobody else.",
  thenItsCode: "The new device shows a code then. Scan it or paste it here.",
  removeDeviceAsk: "Remove this device? Your keys are replaced, and it reads nothing new.",
  replaceKeysAsk:
    "Who has a copy of the old keys reads and signs nothing new. What you leave ticked stays: untick devices that aren't yours, and what you don't know. People who compared numbers with you see that they changed.",
  makeNewKeys: "Make new keys",
  whatStays: "What stays",
  ownKey: (name: string) => `Key ${name}, which this device has added`,
  strangeKey: (name: string) => `Key ${name}, which this device has not added`,
  strangeSealing: "A key to write to you that this device doesn't have",
  relayAt: (address: string) => `Delivery at once (Relay) at ${address}`,
  cacheAt: (address: string) => `Mailbox (Cache) at ${address}`,
  serviceAt: (type: string, address: string) => `${type} at ${address}`,
  strangeService: (service: string) => `${service}, which this device has not chosen`,
  replaceKeys: "Somebody may have my keys",
  keysAreNew: "You have new keys. Old ones open and sign nothing new.",
  thisDevice: "This device",
  addedAt: (when: string) => `Added ${when}`,
  addedByThis: (when: string) => `Added ${when}, by this device`,
  addedBy: (when: string, device: string) => `Added ${when}, by ${device}`,
  remove: "Remove",
  device: "Device",
  deviceLinked: "The device is linked, and gets your messages.",
  addDevice: "Add a device",
  link: "Link",
  linking: "Linking…",
  codeShown: "The code that the new device shows",
  deviceName: "What do you call it?",
  deviceExample: "Phone, for example",

  // The lock
  lock: "Lock",
  lockNow: "Lock now",
  removePasskey: "Remove the passkey",
  addPasskey: "Open with a passkey too",
  lockText:
    "Anyone who opens this browser can read your messages. With a lock they are sealed until you open it.",
  otherPassphrase: "Another passphrase or code",
  setUpLock: "Set up a lock",
  replace: "Replace",
  onlyNewOpens: "From now on only the new one opens.",
  notTheSame: "The two are not the same.",
  lockPassphrase: "Passphrase of the lock, 10 or more characters",
  sameAgain: "The same again",
  ratherCode: "Rather a code to print",
  writeDown: "Write this down or print it, and keep it elsewhere. It is shown only now.",
  lockLost:
    "No one can open it for you if you lose this. A backup with a passphrase of its own helps then.",
};

/** What each language has: the same keys, and functions with the same values. */
export type Words = typeof english;
