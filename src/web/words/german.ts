/** All words of the app in German. It is loaded where it is chosen. */

import type { Words } from "./english.ts";
import { germanFailures } from "./german-failures.ts";
import { pluralOf } from "./plural.ts";

const plural = pluralOf("de");
const has = { you: "hast", they: "hat" } as const;

export const german: Words = {
  // The page
  trial:
    "Zum Ausprobieren: Diese Seite kommt unverschlüsselt, andere in diesem Netz könnten sie ändern. Keine Mitteilungen, keine Installation.",
  newVersion: "Eine neue Version von Waypost ist da.",
  loadIt: "Laden",
  opening: "Wird geöffnet …",
  openingSlow:
    "Dieser Browser hält noch fest, was Waypost gespeichert hat. Wenn das so bleibt, beende den Browser und öffne ihn neu.",
  tryAgain: "Noch einmal versuchen",
  hide: "Ausblenden",
  close: "Schließen",
  cancel: "Abbrechen",
  save: "Speichern",
  back: "Zurück",
  conversationsOpenHere: "Unterhaltungen öffnen sich hier.",
  copied: "Kopiert.",
  noClipboard: "Dieser Browser lässt die Seite nicht kopieren: Markiere den Text.",
  storageRefused:
    "Dieser Browser speichert nichts für diese Seite, deshalb kann Waypost hier nicht arbeiten. Ein privates Fenster oder eine Einstellung, die Websitedaten sperrt, kann der Grund sein.",
  mayBeDeleted:
    "Dieser Browser löscht vielleicht, was hier gespeichert ist. Lege eine Sicherung an.",
  unreadableMessage: "Eine Nachricht ist angekommen, die sich auf diesem Gerät nicht öffnen lässt.",
  addressDiffers:
    "Deine Nachrichten gehen an eine andere Adresse als diese. Möchtest du sie hier haben?",
  moveHere: "Hier empfangen",
  backupOutdated:
    "Deine letzte Sicherung ist von vor dem Ersetzen deiner Schlüssel. Mache eine neue.",
  historyAwaited:
    "Öffne dein anderes Gerät: Dieses wartet auf deine Leute und Gruppen, bevor es Neues zeigt.",
  goOnWithout: "Ohne sie weitermachen",
  keysReplaced:
    "Deine Schlüssel wurden anderswo ersetzt. Hast du dieses Gerät entfernt oder eine Sicherung zurückgeholt? Sonst schreibt jemand anders in deinem Namen: Warne deine Kontakte auf einem anderen Weg.",
  deviceAdded: (device) =>
    `Ein Gerät ist hinzugekommen: ${device}. Wenn du das nicht warst, entferne es.`,
  storeFull:
    "Dieses Gerät ist voll: Neues kann nicht gespeichert werden. Lösche Dateien oder Unterhaltungen.",
  clockWrong: (problem) => `Die Uhr dieses Geräts geht falsch: ${problem}`,
  replacedSince:
    "Deine Schlüssel wurden ersetzt, nachdem diese Sicherung entstand. Verbinde dieses Gerät über eines deiner anderen: Dann sind die Nachrichten der Sicherung da.",
  language: "Sprache",
  languageOfBrowser: "Wie im Browser",

  unknownFailure: (_, code) => `Das ging nicht (${code}).`,
  failures: germanFailures,

  // The first page
  onlyYou: "Nachrichten, die nur du und die lesen können, denen du schreibst.",
  invitesYou: "{} lädt dich zu einer Unterhaltung ein, die nur ihr beide lesen könnt.",
  noNumber:
    "Keine Telefonnummer, keine E-Mail-Adresse: Deine Schlüssel entstehen hier und bleiben hier.",
  start: "Los geht’s",
  makingKeys: "Deine Schlüssel entstehen …",
  yourNameShown: "Dein Name, wie andere ihn sehen",
  optional: "Freiwillig",
  invitationToServer: "Einladung zu diesem Server",
  onOtherDevice: "Ich nutze es auf einem anderen Gerät",
  haveBackup: "Ich habe eine Sicherung",
  restore: "Zurückholen",
  restoreOnlyIf:
    "Nur wenn deine anderen Geräte verloren sind: Ist noch eines da, verbinde dieses darüber. Ein Gerät, das noch da ist, bekommt dann nichts mehr.",
  backupFile: "Datei der Sicherung",
  itsPassphrase: "Ihr Passwort",
  lockedTitle: "Gesperrt",
  lockedText: "Deine Schlüssel und Nachrichten sind auf diesem Gerät versiegelt.",
  unlock: "Entsperren",
  unlocking: "Wird entsperrt …",
  passphraseOrCode: "Passwort, oder der Code, den du gedruckt hast",
  usePasskey: "Den Passkey benutzen",

  // The list of conversations
  conversations: "Unterhaltungen",
  connecting: "Verbindet …",
  settings: "Einstellungen",
  addSomebody: "Jemanden hinzufügen",
  search: "Suchen",
  searchAll: "Leute und Nachrichten suchen",
  requests: "Anfragen",
  request: "Anfrage",
  people: "Leute",
  deleteRequests: "Alle Anfragen löschen",
  deleteRequestsAsk: "Alle Anfragen und was darin steht löschen? Die Absender erfahren es nicht.",
  noConversations:
    "Du hast noch keine Unterhaltungen. Lade jemanden mit einem Link ein, oder mit einem Code für das Telefon.",
  inviteSomebody: "Jemanden einladen",
  foundMessages: "Gefundene Nachrichten",
  messages: "Nachrichten",
  noneFound: "Keine Nachricht mit diesen Wörtern",
  searching: "Sucht …",
  unread: "ungelesen",
  notSentShort: "nicht gesendet",
  you: "Du",
  somebody: "Jemand",
  somebodyNew: "Jemand Neues",
  unsigned: "Nachrichten ohne Unterschrift",
  group: "Gruppe",
  fileSummary: (name) => `Datei: ${name}`,
  withoutName: "ohne Namen",
  today: "Heute",
  yesterday: "Gestern",

  // A conversation
  conversationWith: (name) => `Unterhaltung mit ${name}`,
  notProven: "nicht bewiesen",
  checkWho: "Prüfen, wer das ist",
  aboutGroup: "Über diese Gruppe",
  blockedText: "Du hast diese Person blockiert.",
  unprovenText:
    "Nichts beweist, wer das geschrieben hat. Glaube es nicht, nur weil ein Name dasteht.",
  requestText: "Du kennst diese Person noch nicht. Wenn du sie annimmst, kannst du antworten.",
  accept: "Annehmen",
  decline: "Ablehnen",
  nameForThem: "Wie nennst du sie?",
  isWriting: "{} schreibt …",
  newest: "Neueste",
  saySomething: "Sag etwas.",
  onlyPerson:
    "Nur du und diese Person können lesen, was du hier schreibst. Der Server befördert es versiegelt.",
  onlyMembers:
    "Nur die Mitglieder können lesen, was du hier schreibst. Der Server befördert es versiegelt.",
  block: "Blockieren",
  unblock: "Nicht mehr blockieren",

  // A message
  unprovenMessage: "Nichts beweist, dass diese Person das geschrieben hat.",
  edited: "bearbeitet",
  moreAbout: "Mehr zu dieser Nachricht",
  actions: "Was du tun kannst",
  answer: "Antworten",
  copy: "Kopieren",
  edit: "Bearbeiten",
  deleteHere: "Hier löschen",
  deleteForAll: "Für alle löschen",
  deleteForAllAsk:
    "Diese Nachricht von den Geräten aller löschen, die sie haben? Sie kommt nicht wieder.",
  wasDeleted: "Diese Nachricht wurde gelöscht.",
  messageDeleted: "Nachricht gelöscht",
  changedMessage: "Die geänderte Nachricht",
  quoteMissing: "Eine Nachricht, die nicht hier ist",
  showAll: "Alles zeigen",
  file: "Datei",
  fileRemoved: (name) => `${name}: entfernt, weil dieses Gerät voll war.`,
  coming: "Kommt von deinem anderen Gerät",
  loadFromOther: "Von deinem anderen Gerät laden",
  saveFile: (name, size) => `${name} speichern, ${size}`,
  sendingFile: (name) => `${name} wird gesendet`,
  pictureOf: (name) => `Bild: ${name}`,
  states: {
    waiting: "wartet auf das Senden",
    uncertain: "vielleicht angekommen",
    failed: "nicht gesendet",
    sent: "gesendet",
    received: "angekommen",
    read: "gelesen",
  },
  readBy: (readers, all) => `gelesen von ${readers} von ${all}`,
  notSent: "Nicht gesendet",
  mayHaveArrived: "Vielleicht angekommen",
  sendAgain: "Noch einmal senden",

  forwarded: "Weitergeleitet",
  forward: "Weiterleiten",
  forwardTo: "Weiterleiten an",
  forwardedTo: (name) => `Weitergeleitet an ${name}.`,

  // Reports
  report: "Melden",
  reportTitle: "Dem Betreiber melden",
  reportText:
    "Was du wählst, geht versiegelt an die Person, die diesen Server betreibt, mit einem Beleg, wer es geschrieben hat. Wer es war, erfährt davon nichts.",
  reportWhich: "Welche Nachrichten?",
  reportNone: "Wähle eine Nachricht.",
  reportReason: "Was ist geschehen? (freiwillig)",
  reportBlocks: "Diese Person auch blockieren",
  sendReport: "Meldung senden",
  reported: "Die Meldung geht an den Betreiber.",
  noticeOfOperator: "Vom Betreiber dieses Servers:",
  noticeSeen: "Gelesen",
  maintenance: "Am Server wird gearbeitet: Was du schreibst, wird danach gesendet.",
  reportMessage: "Eine Meldung an den Betreiber",
  operatorName: "Betreiber dieses Servers",
  operatorGoesTo: "Sie geht an:",
  operatorChanged:
    "Dieser Server nennt jetzt eine andere Person als bisher, die ihn betreibt. Frage sie zuerst auf einem anderen Weg: Wer es auch ist, liest deine Meldung.",
  operatorAgreed: "Ich habe gefragt: an die neue senden",
  operatorBelieved: "Ich habe gefragt: der neuen glauben",
  operatorContact: "Betreiber kontaktieren",
  operatorRules: "Regeln dieses Servers",

  whoHasIt: "Wer sie hat",
  callsYou: "ruft dich",
  disappears: (time) => `verschwindet nach ${time}`,
  play: "Abspielen",
  playFile: (name) => `${name} abspielen`,
  noPlaying:
    "Dieser Browser kann diese Datei nicht abspielen. Speichere sie und öffne sie anderswo.",

  // What is chosen in a conversation
  thisConversation: "Diese Unterhaltung",
  pin: "Oben anheften",
  pinned: "angeheftet",
  mute: "Stumm: nur wer dich mit @ ruft, meldet sich",
  muted: "stumm",
  archive: "Weglegen, bis etwas kommt",
  archived: "Weggelegt",
  lasting: "Nachrichten von jetzt an",
  lastingByAdmin: (choice) =>
    `Nachrichten von jetzt an: ${choice}. Das bestimmt, wer die Gruppe verwaltet.`,
  staysForGood: "bleiben",
  lastsFor: (time) => `verschwinden nach ${time}`,
  setTimer: (time, who) => `${has[who]} festgelegt: Nachrichten verschwinden nach ${time}`,
  endedTimer: (who) => `${has[who]} festgelegt: Nachrichten bleiben`,
  timerText:
    "Jede Seite entfernt sie so lange, nachdem sie gesendet oder gelesen wurden. Kopieren kann man sie trotzdem.",

  // Voice messages
  record: "Eine Sprachnachricht aufnehmen",
  recording: (time) => `Aufnahme läuft, ${time}`,
  stopRecording: "Aufnahme beenden",
  dropRecording: "Verwerfen",
  voiceName: "Sprachnachricht",
  noRecording: "Dieser Browser kann keinen Ton aufnehmen.",
  noMicrophone: "Der Browser lässt diese Seite nicht an das Mikrofon.",

  // The line to write
  sendFile: "Eine Datei senden",
  messageTo: (name) => `Nachricht an ${name}`,
  message: "Nachricht",
  send: "Senden",
  unreadFiles: (names) => `Das ist nicht lesbar und wurde nicht gesendet: ${names}`,
  tooLargeFiles: (names) => `Größer als 1 GB: ${names}`,
  filesToSend: "Dateien zum Senden",
  dontSend: (name) => `${name} nicht senden`,
  dontAnswer: "Nicht auf diese Nachricht antworten",
  membersToCall: "Mitglieder, die du rufen kannst",

  // Inviting and writing
  inviteText:
    "Lass sie diesen Code scannen, oder schick ihnen den Link auf einem anderen Weg. Dann können sie dir schreiben.",
  inviteCode: "Deine Einladung als QR-Code",
  inviteLink: "Link deiner Einladung",
  copyLink: "Link kopieren",
  whoComes: "Wer damit kommt",
  acceptsFirst: "wird angenommen, nur die erste Person, eine Woche lang",
  acceptsAll: "wird angenommen, alle, eine Woche lang",
  acceptsNone: "fragt zuerst",
  write: "Schreiben",
  writeTo: "Oder schreibe an einen Link, eine Adresse oder einen Namen",
  pasteHere: "Hier einfügen",
  scanCode: "Einen Code mit der Kamera scannen",
  camera: "Kamera",
  makeGroup: "Eine Gruppe gründen",
  ownInvitation: "Das ist deine eigene Einladung. Schick sie jemand anderem.",
  writeToSomebody: "Jemandem schreiben",
  openConversation: "Unterhaltung öffnen",
  nameForPerson: "Wie nennst du diese Person?",

  // A person
  aboutPerson: "Über diese Person",
  nameAsYou: "Name, wie du sie nennst",
  callThemselves: "Selbst nennt sie sich {}.",
  isItThem: "Ist sie es wirklich?",
  keysProve:
    "Die Schlüssel dieser Person beweisen sich selbst: Der Server kann sie nicht austauschen. Was er nicht beweisen kann: dass sie der Person gehören, die du meinst.",
  keysUnproven: "Der Server sagt, welche Schlüssel diese Person hat, und nichts beweist es.",
  copyAddress: "Adresse kopieren",
  deleteConversation: "Unterhaltung löschen",
  deleteConversationAsk: "Die ganze Unterhaltung von diesem Gerät löschen?",
  askingServer: "Der Server wird gefragt …",
  comparingText:
    "Vergleicht diese Zeichen, am Telefon oder nebeneinander. Seht ihr beide dasselbe, steht niemand zwischen euch.",
  keysDiffer:
    "Der Server zeigt andere Schlüssel als bisher, und nichts erklärt es. Vergleiche, bevor du schreibst.",
  numbersBefore: "Vorher waren es {}",
  isCompared: "Du hast sie verglichen, und seither hat sich kein Schlüssel geändert.",
  haveCompared: "Wir haben sie verglichen",
  comparedNoted: "Notiert: Du hast diese Zeichen verglichen.",
  samePicture: "Dasselbe als Bild",

  // Groups
  newGroup: "Neue Gruppe",
  leftGroup: (who) => `${has[who]} die Gruppe verlassen`,
  madeGroup: (name, people, who) => `${has[who]} die Gruppe „${name}“ mit ${people} gegründet`,
  changedGroup: (name, people, who) => `${has[who]} die Gruppe geändert: „${name}“ mit ${people}`,
  peopleCount: (count) => plural(count, { one: "# Person", other: "# Personen" }),
  leaveGroup: "Die Gruppe verlassen",
  tookOverGroup: (who) => `${has[who]} die Gruppe übernommen`,
  mustHandOver: "Bevor du gehen kannst, übergib die Gruppe jemand anderem.",
  makeAdmin: "Gruppe übergeben",
  makeAdminOf: (name) => `Gruppe übergeben: ${name}`,
  makeAdminAsk:
    "Soll diese Person an deiner Stelle bestimmen, wer in der Gruppe ist, und zwar endgültig? Du bleibst darin.",
  becomesAdmin:
    "{} verwaltet die Gruppe, sobald das Gerät dieser Person und deine anderen Geräte es wissen.",
  secondAdmin:
    "Die Gruppe wurde auch an {} übergeben. Du folgst der ersten Übergabe. Frag die anderen, wem sie folgen.",
  leaveAsk: "Diese Gruppe verlassen? Du bekommst keine Nachrichten mehr daraus.",
  whoIsIn: "Wer mit dir darin ist",
  withYou: (people) => `Mit dir ${people}`,
  admin: "verwaltet sie",
  noneKnown: "Du kennst noch niemanden. Füge zuerst jemanden hinzu.",
  makeTheGroup: "Die Gruppe gründen",
  nameOfGroup: "Name der Gruppe",
  noLongerIn: "Du bist nicht mehr in dieser Gruppe.",
  invitesToGroup: (people) =>
    `{} lädt dich in eine Gruppe mit ${people} ein. Wenn du annimmst, kannst du dort schreiben.`,

  // Settings
  blocked: "Blockiert",
  about: "Über Waypost",
  aboutText: (version) =>
    `Nachrichten werden auf diesem Gerät versiegelt und auf dem anderen geöffnet. Der Server sieht, wer wem wann schreibt, nicht was. Er gibt dir auch diese App: Ein Server, der lügt, könnte dir eine andere geben. Waypost ${version} ist jung und wurde nicht geprüft.`,
  yourAddress: "Deine Adresse: {}",
  usage: (used, all) => `${used} von ${all} sind auf diesem Gerät belegt.`,
  backup: "Sicherung",
  backupText:
    "Deine Schlüssel und Nachrichten sind nur auf diesem Gerät. Mit einer Sicherung und ihrem Passwort bist du anderswo dieselbe Person, mit Leuten und Nachrichten, wie sie jetzt sind.",
  saveBackup: "Sicherung speichern",
  sealing: "Wird versiegelt …",
  passphraseOf10: "Passwort, mindestens 10 Zeichen",
  notifications: "Mitteilungen",
  notifyMe: "Sag mir, wenn jemand schreibt",
  noNotifications: "Dieser Browser zeigt keine Mitteilungen.",
  notificationsOff: "Mitteilungen sind im Browser für diese Seite ausgeschaltet.",
  newMessage: "Neue Nachricht",
  hasWritten: "hat dir geschrieben",
  profile: "Dein Profil",
  profileText: "Wem du schreibst, sieht es mit deiner nächsten Nachricht.",
  choosePicture: "Ein Bild wählen",
  chooseOther: "Ein anderes Bild wählen",
  removeIt: "Entfernen",
  yourName: "Dein Name",
  saveName: "Namen speichern",
  isOpen: "Wen ich kenne, sieht, wann ich Nachrichten gelesen habe und wann ich schreibe",
  noPicture: "Der Browser kann diese Datei nicht als Bild zeigen.",
  pictureTooLarge: "Dieses Bild lässt sich nicht klein genug machen.",

  // Devices
  devices: "Geräte",
  devicesText: "Auf jedem davon bist du dieselbe Person, mit denselben Unterhaltungen.",
  aDevice: "ein Gerät",
  browserOn: (browser, system) => `${browser} auf ${system}`,
  aBrowser: "Browser",
  aComputer: "einem Rechner",
  makingCode: "Ein Code entsteht …",
  scanHere:
    "Öffne auf deinem anderen Gerät die Einstellungen, dann „Ein Gerät hinzufügen“, und scanne diesen Code oder füge seinen Text ein.",
  deviceCode: "Der Code dieses Geräts",
  copyCode: "Den Code kopieren",
  deviceInvitationNeeded:
    "Dieser Server nimmt nur Eingeladene auf, und dein anderes Gerät macht eine Einladung für dieses. Öffne dort die Einstellungen, dann „Ein Gerät hinzufügen“, und öffne hier den Link, den es zeigt, oder füge ihn ein.",
  deviceInvitation: "Der Link, den dein anderes Gerät zeigt",
  openOnNewDevice:
    "Öffne diesen Link innerhalb von 15 Minuten auf dem neuen Gerät. Er gilt für ein Gerät: Zeig ihn niemandem sonst.",
  thenItsCode: "Das neue Gerät zeigt dann einen Code. Scanne ihn oder füge ihn hier ein.",
  removeDeviceAsk:
    "Dieses Gerät entfernen? Deine Schlüssel werden ersetzt, und es liest nichts Neues mehr.",
  replaceKeysAsk:
    "Wer eine Kopie der alten Schlüssel hat, liest und unterschreibt nichts Neues mehr. Was angekreuzt ist, bleibt: Nimm das Kreuz weg bei Geräten, die nicht deine sind, und bei dem, was du nicht kennst. Wer Zeichen mit dir verglichen hat, sieht, dass sie sich geändert haben.",
  makeNewKeys: "Neue Schlüssel machen",
  whatStays: "Was bleibt",
  ownKey: (name) => `Schlüssel ${name}, den dieses Gerät hinzugefügt hat`,
  strangeKey: (name) => `Schlüssel ${name}, den dieses Gerät nicht hinzugefügt hat`,
  strangeSealing: "Ein Schlüssel, um dir zu schreiben, den dieses Gerät nicht hat",
  relayAt: (address) => `Sofortige Zustellung (Relay) bei ${address}`,
  cacheAt: (address) => `Briefkasten (Cache) bei ${address}`,
  serviceAt: (type, address) => `${type} bei ${address}`,
  strangeService: (service) => `${service}, was dieses Gerät nicht gewählt hat`,
  replaceKeys: "Jemand hat vielleicht meine Schlüssel",
  keysAreNew: "Du hast neue Schlüssel. Alte öffnen und unterschreiben nichts Neues.",
  thisDevice: "Dieses Gerät",
  addedAt: (when) => `Hinzugefügt: ${when}`,
  addedByThis: (when) => `Hinzugefügt: ${when}, von diesem Gerät`,
  addedBy: (when, device) => `Hinzugefügt: ${when}, von ${device}`,
  remove: "Entfernen",
  device: "Gerät",
  deviceLinked: "Das Gerät ist verbunden und bekommt deine Nachrichten.",
  addDevice: "Ein Gerät hinzufügen",
  link: "Verbinden",
  linking: "Wird verbunden …",
  codeShown: "Der Code, den das neue Gerät zeigt",
  deviceName: "Wie nennst du es?",
  deviceExample: "Telefon, zum Beispiel",

  // The lock
  lock: "Sperre",
  lockNow: "Jetzt sperren",
  removePasskey: "Den Passkey entfernen",
  addPasskey: "Auch mit einem Passkey öffnen",
  lockText:
    "Wer diesen Browser öffnet, kann deine Nachrichten lesen. Mit einer Sperre sind sie versiegelt, bis du sie öffnest.",
  otherPassphrase: "Ein anderes Passwort oder ein anderer Code",
  setUpLock: "Eine Sperre einrichten",
  replace: "Ersetzen",
  onlyNewOpens: "Ab jetzt öffnet nur das Neue.",
  notTheSame: "Die beiden sind nicht gleich.",
  lockPassphrase: "Passwort der Sperre, mindestens 10 Zeichen",
  sameAgain: "Noch einmal dasselbe",
  ratherCode: "Lieber ein Code zum Drucken",
  writeDown:
    "Schreib das auf oder druck es, und bewahre es anderswo auf. Es wird nur jetzt gezeigt.",
  lockLost:
    "Niemand kann sie dir öffnen, wenn du das verlierst. Eine Sicherung mit eigenem Passwort hilft dann.",
};
