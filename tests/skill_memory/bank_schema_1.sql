PRAGMA application_id = 0x53455341;
PRAGMA user_version = 1;
BEGIN TRANSACTION;
CREATE TABLE about (key TEXT PRIMARY KEY, value TEXT NOT NULL);
INSERT INTO "about" VALUES('encoder','5893f779d8bfbbda');
INSERT INTO "about" VALUES('primed','no');
INSERT INTO "about" VALUES('underway','[]');
CREATE TABLE events (number INTEGER PRIMARY KEY AUTOINCREMENT, step INTEGER NOT NULL, kind TEXT NOT NULL,
        cause TEXT NOT NULL, skill_id TEXT NOT NULL, data TEXT NOT NULL);
INSERT INTO "events" VALUES(1,1,'admit','by hand','skill-000001','{"skill": {"avoid": "another event", "category": "dates", "created_step": 1, "description": "Name the event in the query.", "id": "skill-000001", "is_seed": false, "queries": ["{event} year"], "schema": 1, "source": "", "triggers": ["what year"], "usage": {"helped": 0, "hurt": 0, "retrieved": 0}}}');
INSERT INTO "events" VALUES(2,2,'admit','by hand','skill-000002','{"skill": {"avoid": "one side only", "category": "dates", "created_step": 2, "description": "Search each side on its own.", "id": "skill-000002", "is_seed": false, "queries": ["{name} {property}"], "schema": 1, "source": "", "triggers": ["A or B"], "usage": {"helped": 0, "hurt": 0, "retrieved": 0}}}');
INSERT INTO "events" VALUES(3,3,'admit','by hand','skill-000003','{"skill": {"avoid": "the same words", "category": "dates", "created_step": 3, "description": "Drop the rarest word and ask again.", "id": "skill-000003", "is_seed": false, "queries": ["{name}"], "schema": 1, "source": "", "triggers": ["odd words"], "usage": {"helped": 0, "hurt": 0, "retrieved": 0}}}');
INSERT INTO "events" VALUES(4,3,'credit','hurt','','{"question_id": "q3", "skill_ids": ["skill-000001", "skill-000003"]}');
INSERT INTO "events" VALUES(5,3,'credit','helped','','{"question_id": "r3", "skill_ids": ["skill-000002"]}');
INSERT INTO "events" VALUES(6,4,'credit','hurt','','{"question_id": "q4", "skill_ids": ["skill-000001", "skill-000003"]}');
INSERT INTO "events" VALUES(7,4,'credit','helped','','{"question_id": "r4", "skill_ids": ["skill-000002"]}');
INSERT INTO "events" VALUES(8,5,'credit','helped','','{"question_id": "q5", "skill_ids": ["skill-000001", "skill-000003"]}');
INSERT INTO "events" VALUES(9,5,'credit','helped','','{"question_id": "r5", "skill_ids": ["skill-000002"]}');
INSERT INTO "events" VALUES(10,6,'credit','hurt','','{"question_id": "q6", "skill_ids": ["skill-000003"]}');
INSERT INTO "events" VALUES(11,7,'offer','queued','','{"question_id": "q7"}');
INSERT INTO "events" VALUES(12,8,'evict','harmful','skill-000003','{"usage": {"helped": 1, "hurt": 3, "retrieved": 4}}');
INSERT INTO "events" VALUES(13,8,'evict','harmful','skill-000001','{"usage": {"helped": 1, "hurt": 2, "retrieved": 3}}');
INSERT INTO "events" VALUES(14,8,'drain','consolidation','','{"failures": 1}');
INSERT INTO "events" VALUES(15,8,'consolidate','schedule','','{"admitted": 0, "causes": {}, "drained": 1, "evicted": 2, "postponed": 0, "refused": {}, "trial_attempts": 0}');
INSERT INTO "events" VALUES(16,9,'offer','queued','','{"question_id": "q9"}');
CREATE TABLE failures (number INTEGER PRIMARY KEY AUTOINCREMENT, question_id TEXT NOT NULL, step INTEGER NOT NULL,
        times INTEGER NOT NULL DEFAULT 1, record TEXT NOT NULL, UNIQUE (question_id, step));
INSERT INTO "failures" VALUES(2,'q9',9,1,'{"answers": ["Olav Berg"], "question": "Who is the father of the director?", "question_id": "q9", "skill_ids": ["skill-000002"], "solve_rate": 0.4, "split": "train", "step": 9, "trajectory": {"end_reason": "answered", "episode": "q7/solver_0", "output": "Jon", "reward": 0.0, "seat": "solver_0", "turns": [{"action": {"kind": "search", "reason": "", "text": "Polar Sky"}, "observation": "", "passages": [{"id": "p1", "score": 0.0, "text": "Polar Sky is a film directed by Jon Falk.", "title": "Polar Sky"}], "text": "<search>Polar Sky</search>"}, {"action": {"kind": "answer", "reason": "", "text": "Jon"}, "observation": "", "passages": [], "text": "<answer>Jon</answer>"}], "usable": true}}');
CREATE TABLE skills (number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, text TEXT NOT NULL UNIQUE,
        record TEXT NOT NULL, retrieved INTEGER NOT NULL DEFAULT 0, helped INTEGER NOT NULL DEFAULT 0,
        hurt INTEGER NOT NULL DEFAULT 0);
INSERT INTO "skills" VALUES(2,'skill-000002','search each side on its own. a or b one side only','{"avoid": "one side only", "category": "dates", "created_step": 2, "description": "Search each side on its own.", "id": "skill-000002", "is_seed": false, "queries": ["{name} {property}"], "schema": 1, "source": "", "triggers": ["A or B"]}',3,3,0);
CREATE TABLE tombstones (text TEXT PRIMARY KEY, id TEXT NOT NULL UNIQUE, record TEXT NOT NULL);
INSERT INTO "tombstones" VALUES('drop the rarest word and ask again. odd words the same words','skill-000003','{"avoid": "the same words", "category": "dates", "created_step": 3, "description": "Drop the rarest word and ask again.", "id": "skill-000003", "is_seed": false, "queries": ["{name}"], "schema": 1, "source": "", "triggers": ["odd words"]}');
INSERT INTO "tombstones" VALUES('name the event in the query. what year another event','skill-000001','{"avoid": "another event", "category": "dates", "created_step": 1, "description": "Name the event in the query.", "id": "skill-000001", "is_seed": false, "queries": ["{event} year"], "schema": 1, "source": "", "triggers": ["what year"]}');
CREATE TABLE vectors (id TEXT PRIMARY KEY REFERENCES skills(id) ON DELETE CASCADE, vector BLOB NOT NULL);
INSERT INTO "vectors" VALUES('skill-000002',X'0000000000000000000000000000000000000000000000000000000000000000C967DFBD000000000000000000000000000000000000000000000000C2FF803E000000001829083F00000000000000000000000000000000000000000000000000000000F7F02E3E0000000000000000C967DFBD0000000000000000000000000000000000000000000000006E528FBE0000000000000000F7F02E3E0000000000000000000000000000000000000000AB81453E0000000000000000C79A9ABE00000000000000000000000000000000F7F02EBE00000000C2FF80BE6B75CCBEC2FF80BE00000000AB81453EC967DF3D00000000000000000000000000000000');
CREATE INDEX events_by_skill ON events (skill_id, kind);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('skills',3);
INSERT INTO "sqlite_sequence" VALUES('events',16);
INSERT INTO "sqlite_sequence" VALUES('failures',2);
COMMIT;
